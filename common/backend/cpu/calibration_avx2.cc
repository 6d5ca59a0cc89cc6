// SPDX-License-Identifier: Apache-2.0
// Loops at the arithmetic peak of AVX2 and AVX-VNNI: blocks of 6 rows x 2 vectors in registers, operands in the first-level
// cache. Compiled with wide flags: see kernels.h on what may be included.
#include <immintrin.h>

namespace baton::cpu {

double PeakInt8AvxVnni(long iterations);
double PeakInt8Avx2(long iterations);
double PeakFp32Avx2(long iterations);

namespace {

constexpr int kRows = 6, kVectors = 2, kDepth = 64;

// As in calibration_avx512.cc.
struct Operands {
  alignas(32) unsigned w[kDepth][kVectors][8];
  alignas(32) unsigned x[kDepth][kRows];

  Operands(unsigned w_bits, unsigned x_bits) {
    for (int k = 0; k < kDepth; ++k) {
      for (int i = 0; i < 8 * kVectors; ++i) w[k][i / 8][i % 8] = w_bits;
      for (int r = 0; r < kRows; ++r) x[k][r] = x_bits;
    }
    __asm__ volatile("" : : "r"(this) : "memory");
  }
};

inline __m256i LoadInts(const unsigned* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// Unrolled, so that the sums stay in registers.
template <typename Vector>
inline __attribute__((always_inline)) void Fill(Vector (&acc)[kRows][kVectors], Vector value) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v] = value;
  }
}
template <typename Vector>
inline __attribute__((always_inline)) void Use(Vector (&acc)[kRows][kVectors]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) __asm__ volatile("" : : "x"(acc[r][v]));
  }
}

}  // namespace

__attribute__((target("avxvnni"))) double PeakInt8AvxVnni(long iterations) {
  const Operands operands(0x03030303, 0xfbfbfbfb);
  __m256i acc[kRows][kVectors];
  Fill(acc, _mm256_setzero_si256());
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      const __m256i w[kVectors] = {LoadInts(operands.w[k][0]), LoadInts(operands.w[k][1])};
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = _mm256_set1_epi32(static_cast<int>(operands.x[k][r]));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_dpbusd_avx_epi32(acc[r][v], w[v], x);
      }
    }
  }
  Use(acc);
  return 64.0 * kRows * kVectors * kDepth * static_cast<double>(iterations);
}

// Without dot-product instructions: products of weights below 16 in pairs, summed in 16 bits, as linear_dots_avx2_impl.h does.
// The sums wrap here, where nobody looks at them.
double PeakInt8Avx2(long iterations) {
  const Operands operands(0x03030303, 0xfbfbfbfb);
  __m256i acc[kRows][kVectors];
  Fill(acc, _mm256_setzero_si256());
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      const __m256i w[kVectors] = {LoadInts(operands.w[k][0]), LoadInts(operands.w[k][1])};
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = _mm256_set1_epi32(static_cast<int>(operands.x[k][r]));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_add_epi16(acc[r][v], _mm256_maddubs_epi16(w[v], x));
      }
    }
  }
  Use(acc);
  return 64.0 * kRows * kVectors * kDepth * static_cast<double>(iterations);
}

double PeakFp32Avx2(long iterations) {
  const Operands operands(0x3f000000, 0x3e800000);  // 0.5, 0.25
  __m256 acc[kRows][kVectors];
  Fill(acc, _mm256_setzero_ps());
  for (long n = 0; n < iterations; ++n) {
    for (int k = 0; k < kDepth; ++k) {
      const __m256 w[kVectors] = {_mm256_castsi256_ps(LoadInts(operands.w[k][0])),
                                  _mm256_castsi256_ps(LoadInts(operands.w[k][1]))};
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(operands.x[k][r])));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_fmadd_ps(w[v], x, acc[r][v]);
      }
    }
  }
  Use(acc);
  return 16.0 * kRows * kVectors * kDepth * static_cast<double>(iterations);
}

}  // namespace baton::cpu
