// SPDX-License-Identifier: Apache-2.0
// Loops at the arithmetic peak of AVX-512. Compiled with wide flags: see kernels.h on what may be included.
#include <immintrin.h>

namespace baton::cpu {

double PeakInt8Avx512(long iterations);
double PeakFp32Avx512(long iterations);
double PeakBf16Avx512(long iterations);

namespace {
constexpr int kChains = 16;  // More than latency times throughput.
}

double PeakInt8Avx512(long iterations) {
  __m512i acc[kChains], w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(-5);
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);
  for (long n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], w, x);
    __asm__ volatile("" : "+v"(w), "+v"(x));
  }
  for (int i = 0; i < kChains; ++i) __asm__ volatile("" : : "v"(acc[i]));
  return 128.0 * kChains * static_cast<double>(iterations);
}

double PeakFp32Avx512(long iterations) {
  __m512 acc[kChains], w = _mm512_set1_ps(0.5f), x = _mm512_set1_ps(1.5f);
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  for (long n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_fmadd_ps(w, x, acc[i]);
    __asm__ volatile("" : "+v"(w), "+v"(x));
  }
  for (int i = 0; i < kChains; ++i) __asm__ volatile("" : : "v"(acc[i]));
  return 32.0 * kChains * static_cast<double>(iterations);
}

__attribute__((target("avx512bf16"))) double PeakBf16Avx512(long iterations) {
  __m512 acc[kChains];
  __m512i w = _mm512_set1_epi16(0x3f00), x = _mm512_set1_epi16(0x3fc0);
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  for (long n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      acc[i] = _mm512_dpbf16_ps(acc[i], reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
    }
    __asm__ volatile("" : "+v"(w), "+v"(x));
  }
  for (int i = 0; i < kChains; ++i) __asm__ volatile("" : : "v"(acc[i]));
  return 64.0 * kChains * static_cast<double>(iterations);
}

}  // namespace baton::cpu
