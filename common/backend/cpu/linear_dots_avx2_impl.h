// SPDX-License-Identifier: Apache-2.0
// Dot products of a group by AVX2, which has none of four bytes: VPMADDUBSW multiplies bytes and adds pairs in 16 bits.
//
// Weights below 16: a pair is at most 2 x 15 x 128 in magnitude, and eight steps of a group at most 30,720: they are summed in
// 16 bits, and widened once per group: two instructions for 32 products instead of three, and half the multiplications.
//
// Weights of eight bits would overflow the pairs. They are widened to 16 bits, even and odd bytes apart, and meet both terms of
// the activations at once, 256 hi + lo, in VPMADDWD: half the rate, whatever the number of terms.

namespace baton::cpu {
namespace {

// Keeps the compiler from reassociating integer sums: it would compute all products first, and spill them.
BATON_ALWAYS_INLINE void KeepSum(__m256i& x) { __asm__("" : "+x"(x)); }

BATON_ALWAYS_INLINE __m256i BroadcastX4(const int8_t* p) { return _mm256_set1_epi32(LoadX4(p)); }
BATON_ALWAYS_INLINE __m256i Load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// sum = (first ? 0 : sum) + pairs of w x.
BATON_ALWAYS_INLINE void AddPairs(bool first, __m256i w, __m256i x, __m256i& sum) {
  const __m256i pairs = _mm256_maddubs_epi16(w, x);
  sum = first ? pairs : _mm256_add_epi16(sum, pairs);
  KeepSum(sum);
}

// One tile of weights below 16.
template <class F, DotInto kInto, int R>
BATON_ALWAYS_INLINE void NibbleDots(const uint8_t* record, const int8_t* x, W (&t)[R][1]) {
  static_assert(F::num_scales == 1);
  __m256i sum[R][2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int s = F::packed_nibbles ? i / 2 + 4 * (i % 2) : i;
    const B w = F::Step(record, s);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256i x4 = BroadcastX4(x + 32 * r + 4 * s);
      AddPairs(i == 0, w.a, x4, sum[r][0]);
      AddPairs(i == 0, w.b, x4, sum[r][1]);
    }
    KeepOrder();
  }
  const __m256i one = _mm256_set1_epi16(kInto == DotInto::kNew256 ? 256 : 1);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const W dot = {_mm256_madd_epi16(sum[r][0], one), _mm256_madd_epi16(sum[r][1], one)};
    t[r][0] = kInto == DotInto::kSum ? AddI(t[r][0], dot) : dot;
  }
}

// One tile of weights of eight bits, half or all of a group; x: int16 in the order of QuantisedRows::wide.
template <class F, DotInto kInto, int R>
BATON_ALWAYS_INLINE void WideDots(const uint8_t* record, int half, const int16_t* x, W (&t)[R][1]) {
  constexpr int kSteps = 8 / F::num_scales;
  __m256i sum[R][2];
#pragma GCC unroll 16
  for (int i = 0; i < 2 * kSteps; ++i) {
    const int s = kSteps * half + i / 2, odd = i % 2;
    const B bytes = F::Step(record, s);
    const __m256i mask = _mm256_set1_epi16(255);
    const __m256i a = odd ? _mm256_srli_epi16(bytes.a, 8) : _mm256_and_si256(bytes.a, mask);
    const __m256i b = odd ? _mm256_srli_epi16(bytes.b, 8) : _mm256_and_si256(bytes.b, mask);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256i pair = BroadcastX4(reinterpret_cast<const int8_t*>(x + 32 * r + 4 * s + 2 * odd));
      const __m256i pa = _mm256_madd_epi16(a, pair), pb = _mm256_madd_epi16(b, pair);
      sum[r][0] = i == 0 ? pa : _mm256_add_epi32(sum[r][0], pa);
      sum[r][1] = i == 0 ? pb : _mm256_add_epi32(sum[r][1], pb);
      KeepSum(sum[r][0]);
      KeepSum(sum[r][1]);
    }
    KeepOrder();
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const W dot = {sum[r][0], sum[r][1]};
    t[r][0] = kInto == DotInto::kSum ? AddI(t[r][0], dot) : dot;
  }
}

// As in linear_dots_impl.h; one tile.
template <class F, Integers kIntegers, DotInto kInto, int R, int C>
BATON_ALWAYS_INLINE void GroupDots(const uint8_t* const (&record)[C], int64_t g, int half, const RowBlock<R>& rows,
                                   W (&t)[R][C]) {
  static_assert(C == 1 && (kIntegers == Integers::kWide) == !F::four_bit);
  const int64_t at = g * rows.ld * 32;
  if constexpr (kIntegers == Integers::kWide) {
    WideDots<F, kInto, R>(record[0], half, Opaque(rows.wide + at), t);
  } else {
    NibbleDots<F, kInto, R>(record[0], Opaque((kIntegers == Integers::kLo ? rows.lo : rows.hi) + at), t);
  }
}

}  // namespace
}  // namespace baton::cpu
