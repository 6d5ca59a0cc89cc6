// SPDX-License-Identifier: Apache-2.0
// Dot products of a group for instruction sets that have them (and for plain C++): one chain of Dot per output; included
// by one .cc per instruction set. linear_dots_avx2_impl.h is the other choice.

namespace baton::cpu {
namespace {

// The dot product of group g (or half `half` of it) of R rows with C records, exact. Steps are outermost, so that the chains
// run side by side.
template <class F, Integers kIntegers, DotInto kInto, int R, int C>
BATON_ALWAYS_INLINE void GroupDots(const uint8_t* const (&record)[C], int64_t g, int half, const RowBlock<R>& rows,
                                   W (&t)[R][C]) {
  static_assert(kIntegers != Integers::kWide);
  const int8_t* x = Opaque((kIntegers == Integers::kLo ? rows.lo : rows.hi) + g * rows.ld * 32);
  constexpr int kPairs = 4 / F::num_scales;
  if constexpr (kInto != DotInto::kSum) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = ZeroI();
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kPairs; ++i) {  // Two steps that share their bytes where these are nibbles.
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const int s = 2 * kPairs * half + i + kPairs * j;
      B w[C];
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) w[c] = F::Step(record[c], s);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int32_t x4 = LoadX4(x + 32 * r + 4 * s);
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) t[r][c] = Dot(t[r][c], w[c], x4);
      }
    }
    KeepOrder();
  }
  if constexpr (kInto == DotInto::kNew256) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = Shl<8>(t[r][c]);
    }
  }
}

}  // namespace
}  // namespace baton::cpu
