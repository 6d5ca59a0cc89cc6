// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_BACKEND_EMULATED_TILES_H_
#define BATON_TESTS_UNIT_BACKEND_EMULATED_TILES_H_

// The functions of common/backend/cpu/tile_amx.h in plain C++, so that the kernels of AMX are tested where there is none. Included
// before the kernels, it takes that header's place. What a CPU would refuse (#UD, #GP) ends the process with a line that says
// what, and so does a dot product whose bits could depend on the order of its sums: the kernels promise that none does. What this
// cannot show: speed, and what the assembler makes of the real ones.
#define BATON_COMMON_BACKEND_CPU_TILE_AMX_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/backend/cpu/tile_config.h"
#include "tests/unit/backend/emulated_tile_use.h"

namespace baton::cpu {

namespace {

struct EmulatedTiles {
  bool configured = false;
  TileConfig config;
  uint8_t data[8][16][64];
  int64_t num_dots = 0;
};
thread_local EmulatedTiles emulated_tiles;

[[noreturn]] inline void TileFault(const char* what) {
  std::fprintf(stderr, "emulated tiles: %s\n", what);
  std::abort();
}

inline void ConfigureTiles(const TileConfig& config) {
  if (config.palette != 1 || config.start_row != 0) TileFault("#GP: palette or start row");
  for (const uint8_t byte : config.reserved) {
    if (byte != 0) TileFault("#GP: reserved byte set");
  }
  for (int i = 0; i < 16; ++i) {
    if (config.rows[i] > 16 || config.row_bytes[i] > 64) TileFault("#GP: tile too large");
    if (i >= 8 && (config.rows[i] != 0 || config.row_bytes[i] != 0)) TileFault("#GP: no such tile");
    if ((config.rows[i] == 0) != (config.row_bytes[i] == 0)) TileFault("#GP: rows without bytes");
  }
  emulated_tiles.configured = true;
  emulated_tiles.config = config;
  std::memset(emulated_tiles.data, 0, sizeof(emulated_tiles.data));
}

inline void ReleaseTiles() { emulated_tiles.configured = false; }

inline void CheckTile(int tile) {
  if (!emulated_tiles.configured) TileFault("#UD: tiles are not configured");
  if (emulated_tiles.config.rows[tile] == 0) TileFault("#UD: this tile is not configured");
}

template <int kTile>
inline void ZeroTile() {
  CheckTile(kTile);
  std::memset(emulated_tiles.data[kTile], 0, sizeof(emulated_tiles.data[kTile]));
}

template <int kTile>
inline void LoadTile(const void* p, int64_t stride) {
  ZeroTile<kTile>();
  const uint8_t* row = static_cast<const uint8_t*>(p);
  for (int r = 0; r < emulated_tiles.config.rows[kTile]; ++r, row += stride) {
    std::memcpy(emulated_tiles.data[kTile][r], row, emulated_tiles.config.row_bytes[kTile]);
  }
}

template <int kTile>
inline void StoreTile(void* p, int64_t stride) {
  CheckTile(kTile);
  uint8_t* row = static_cast<uint8_t*>(p);
  for (int r = 0; r < emulated_tiles.config.rows[kTile]; ++r, row += stride) {
    std::memcpy(row, emulated_tiles.data[kTile][r], emulated_tiles.config.row_bytes[kTile]);
  }
}

// The integer that a float is; ends the process where it is none.
inline int64_t IntegerOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  if (!(value > -1e9f && value < 1e9f) || value != static_cast<float>(static_cast<int64_t>(value))) TileFault("not an integer");
  if (value == 0 && bits != 0) TileFault("minus zero");
  return static_cast<int64_t>(value);
}

template <int kSums, int kA, int kB>
inline void DotBf16() {
  static_assert(kSums != kA && kSums != kB && kA != kB, "#UD");
  CheckTile(kSums);
  CheckTile(kA);
  CheckTile(kB);
  const TileConfig& c = emulated_tiles.config;
  if (c.row_bytes[kA] % 4 != 0 || c.row_bytes[kA] / 4 != c.rows[kB]) TileFault("#UD: depth of the operands differs");
  if (c.rows[kSums] != c.rows[kA] || c.row_bytes[kSums] != c.row_bytes[kB]) TileFault("#UD: shape of the sums");
  int64_t a[16][32] = {}, b[32][16] = {};
  const auto word = [](int tile, int row, int i) {
    uint16_t bf16;
    std::memcpy(&bf16, &emulated_tiles.data[tile][row][2 * i], 2);
    return IntegerOf(uint32_t{bf16} << 16);
  };
  for (int r = 0; r < c.rows[kA]; ++r) {
    for (int i = 0; i < c.row_bytes[kA] / 2; ++i) a[r][i] = word(kA, r, i);
  }
  for (int r = 0; r < c.rows[kB]; ++r) {
    for (int i = 0; i < c.row_bytes[kB] / 2; ++i) b[2 * r + i % 2][i / 2] = word(kB, r, i);
  }
  for (int r = 0; r < c.rows[kSums]; ++r) {
    for (int n = 0; n < c.row_bytes[kSums] / 4; ++n) {
      uint32_t bits;
      std::memcpy(&bits, &emulated_tiles.data[kSums][r][4 * n], 4);
      int64_t sum = IntegerOf(bits), most = std::abs(sum), all = sum;
      for (int i = 0; i < 2 * c.rows[kB]; ++i) {
        const int64_t product = a[r][i] * b[i][n];
        sum += product;
        most += std::abs(product);
        all |= product;
      }
      // Any order gives the same where whatever is summed is a multiple of a power of two and below 2^24 times it.
      if (all != 0 && most >= (all & -all) << 24) TileFault("sums may be rounded");
      const float value = static_cast<float>(sum);
      std::memcpy(&emulated_tiles.data[kSums][r][4 * n], &value, 4);
    }
  }
  ++emulated_tiles.num_dots;
}

}  // namespace
}  // namespace baton::cpu

#endif  // BATON_TESTS_UNIT_BACKEND_EMULATED_TILES_H_
