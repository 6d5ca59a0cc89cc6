// SPDX-License-Identifier: Apache-2.0
// Loops at the arithmetic peak of AVX-512: blocks of 8 rows x 3 vectors in registers, operands in the first-level cache.
// Compiled with wide flags: see kernels.h on what may be included.
#include <immintrin.h>

namespace baton::cpu {

double PeakInt8Avx512(long iterations);
double PeakFp32Avx512(long iterations);
double PeakBf16Avx512(long iterations);

namespace {

constexpr int kRows = 8, kVectors = 3, kDepth = 64;

// 12 KiB of weights and 2 KiB of inputs. One value everywhere: what is multiplied takes the same time whatever it is.
struct Operands {
  alignas(64) unsigned w[kDepth][kVectors][16];
  alignas(64) unsigned x[kDepth][kRows];

  Operands(unsigned w_bits, unsigned x_bits) {
    for (int k = 0; k < kDepth; ++k) {
      for (int i = 0; i < 16 * kVectors; ++i) w[k][i / 16][i % 16] = w_bits;
      for (int r = 0; r < kRows; ++r) x[k][r] = x_bits;
    }
    __asm__ volatile("" : : "r"(this) : "memory");  // So that the compiler does not know the values.
  }
};

// Unrolled, so that the sums stay in registers.
template <typename Vector>
inline __attribute__((always_inline)) void Fill(Vector (&acc)[kRows][kVectors], Vector value) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) acc[r][v] = value;
  }
}
template <typename Vector>
inline __attribute__((always_inline)) void Use(Vector (&acc)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) __asm__ volatile("" : : "v"(acc[r][v]));
  }
}

}  // namespace

double PeakInt8Avx512(long iterations) {
  const Operands operands(0x03030303, 0xfbfbfbfb);
  __m512i acc[kRows][kVectors];
  Fill(acc, _mm512_setzero_si512());
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      __m512i w[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) w[v] = _mm512_load_si512(operands.w[k][v]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(operands.x[k][r]));
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], w[v], x);
      }
    }
  }
  Use(acc);
  return 128.0 * kRows * kVectors * kDepth * static_cast<double>(iterations);
}

double PeakFp32Avx512(long iterations) {
  const Operands operands(0x3f000000, 0x3e800000);  // 0.5, 0.25
  __m512 acc[kRows][kVectors];
  Fill(acc, _mm512_setzero_ps());
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      __m512 w[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) w[v] = _mm512_load_ps(operands.w[k][v]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512 x = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(operands.x[k][r])));
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_fmadd_ps(w[v], x, acc[r][v]);
      }
    }
  }
  Use(acc);
  return 32.0 * kRows * kVectors * kDepth * static_cast<double>(iterations);
}

__attribute__((target("avx512bf16"))) double PeakBf16Avx512(long iterations) {
  const Operands operands(0x3f003f00, 0x3e803e80);  // Pairs of 0.5, 0.25
  __m512 acc[kRows][kVectors];
  Fill(acc, _mm512_setzero_ps());
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      __m512i w[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) w[v] = _mm512_load_si512(operands.w[k][v]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(operands.x[k][r]));
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) {
          acc[r][v] = _mm512_dpbf16_ps(acc[r][v], reinterpret_cast<__m512bh>(w[v]), reinterpret_cast<__m512bh>(x));
        }
      }
    }
  }
  Use(acc);
  return 64.0 * kRows * kVectors * kDepth * static_cast<double>(iterations);
}

}  // namespace baton::cpu
