// SPDX-License-Identifier: Apache-2.0
// Loops at the arithmetic peak of AVX2 and AVX-VNNI. Compiled with wide flags: see kernels.h on what may be included.
#include <immintrin.h>

namespace baton::cpu {

double PeakInt8AvxVnni(long iterations);
double PeakFp32Avx2(long iterations);

namespace {
constexpr int kChains = 12;  // More than latency times throughput; 16 registers.
}

__attribute__((target("avxvnni"))) double PeakInt8AvxVnni(long iterations) {
  __m256i acc[kChains], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-5);
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_epi32(i);
  for (long n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = _mm256_dpbusd_avx_epi32(acc[i], w, x);
    __asm__ volatile("" : "+x"(w), "+x"(x));
  }
  for (int i = 0; i < kChains; ++i) __asm__ volatile("" : : "x"(acc[i]));
  return 64.0 * kChains * static_cast<double>(iterations);
}

double PeakFp32Avx2(long iterations) {
  __m256 acc[kChains], w = _mm256_set1_ps(0.5f), x = _mm256_set1_ps(1.5f);
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  for (long n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = _mm256_fmadd_ps(w, x, acc[i]);
    __asm__ volatile("" : "+x"(w), "+x"(x));
  }
  for (int i = 0; i < kChains; ++i) __asm__ volatile("" : : "x"(acc[i]));
  return 16.0 * kChains * static_cast<double>(iterations);
}

}  // namespace baton::cpu
