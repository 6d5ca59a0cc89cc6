// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/copy_past_caches.h"

#include <immintrin.h>

#include <cstring>

namespace baton {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kAhead = 16 * kLine;

// How much it has copied: whole lines.
__attribute__((target("avx2"))) size_t CopyLines(uint8_t* to, const uint8_t* from, size_t bytes) {
  size_t at = 0;
  for (; at + kLine <= bytes; at += kLine) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
    if (at + kAhead < bytes) _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), high);
  }
  _mm_sfence();  // Whoever hears of it sees it.
  return at;
}

}  // namespace

void CopyPastCaches(uint8_t* to, const uint8_t* from, size_t bytes) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  const bool can = has_avx2 && reinterpret_cast<uintptr_t>(to) % 32 == 0;
  const size_t copied = can ? CopyLines(to, from, bytes) : 0;
  std::memcpy(to + copied, from + copied, bytes - copied);
}

}  // namespace baton
