// SPDX-License-Identifier: Apache-2.0
// Loops at the arithmetic peak of AMX tiles: 2 x 2 tiles of sums, operands in the first-level cache. The operating system
// must have granted the tiles to this process before (calibration.cc asks). Compiled with wide flags: see kernels.h on what
// may be included.
#include <immintrin.h>

namespace baton::cpu {

double PeakInt8Amx(long iterations);
double PeakBf16Amx(long iterations);

namespace {

constexpr int kDepth = 4, kTileBytes = 1024;  // Tiles of 16 rows of 64 bytes.

struct alignas(64) TileConfig {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

struct Operands {
  alignas(64) unsigned char a[kDepth][2][kTileBytes];
  alignas(64) unsigned char b[kDepth][2][kTileBytes];
  Operands() {
    for (int i = 0; i < kDepth * 2 * kTileBytes; ++i) {
      a[i / (2 * kTileBytes)][i / kTileBytes % 2][i % kTileBytes] = 1;
      b[i / (2 * kTileBytes)][i / kTileBytes % 2][i % kTileBytes] = 2;
    }
    __asm__ volatile("" : : "r"(this) : "memory");
  }
};

}  // namespace

__attribute__((target("amx-tile,amx-int8"))) double PeakInt8Amx(long iterations) {
  const Operands operands;
  const TileConfig config;
  __asm__ volatile("" : : "r"(&config) : "memory");  // The intrinsic names only the first bytes of it.
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      _tile_loadd(4, operands.a[k][0], 64);
      _tile_loadd(5, operands.a[k][1], 64);
      _tile_loadd(6, operands.b[k][0], 64);
      _tile_loadd(7, operands.b[k][1], 64);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 4, 7);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_release();
  return 4 * 2.0 * 16 * 16 * 64 * kDepth * static_cast<double>(iterations);
}

__attribute__((target("amx-tile,amx-bf16"))) double PeakBf16Amx(long iterations) {
  const Operands operands;
  const TileConfig config;
  __asm__ volatile("" : : "r"(&config) : "memory");  // The intrinsic names only the first bytes of it.
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      _tile_loadd(4, operands.a[k][0], 64);
      _tile_loadd(5, operands.a[k][1], 64);
      _tile_loadd(6, operands.b[k][0], 64);
      _tile_loadd(7, operands.b[k][1], 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_release();
  return 4 * 2.0 * 16 * 16 * 32 * kDepth * static_cast<double>(iterations);
}

}  // namespace baton::cpu
