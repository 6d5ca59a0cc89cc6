// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers: the block kernel, R rows by C tiles of 16 outputs, over packed or expanded weights; included by one
// .cc per instruction set.

namespace baton::cpu {
namespace {

// Weights of eight bits meet activations of sixteen: both terms at once.
template <class F>
constexpr bool kWide = kWideBytes && !F::four_bit;

// t[r][c] = minus the offset times the sum of the integers: 2^kShift times neg_sum. kDown: sums of two terms are 2^8 times
// those of hi alone.
template <int kDown, int kShift, int R, int C>
BATON_ALWAYS_INLINE void StartRows(const int32_t* neg_sum, W (&t)[R][C]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    W offset;
    if constexpr (kDown > kShift) {
      offset = Sar<kDown - kShift>(SetI(neg_sum[r]));
    } else {
      offset = Shl<kShift - kDown>(SetI(neg_sum[r]));
    }
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) t[r][c] = offset;
  }
}
template <int kShift, int R, int C>
BATON_ALWAYS_INLINE void AddToRows(const int32_t* neg_sum, W (&t)[R][C]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const W offset = Shl<kShift>(SetI(neg_sum[r]));
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) t[r][c] = AddI(t[r][c], offset);
  }
}

// acc += group g (half of it in formats with groups of 16). kLo: some row has a second term here.
template <class F, bool kTwo, bool kLo, int R, int C>
BATON_ALWAYS_INLINE void BlockGroup(const uint8_t* const (&record)[C], int64_t g, int half, const RowBlock<R>& x,
                                    V (&acc)[R][C]) {
  const int64_t s = (F::num_scales * g + half) * x.ld;
  const int32_t* neg_sum = (F::group16 ? x.neg_sum16 : x.neg_sum) + s;
  constexpr DotInto kInto = F::has_min ? DotInto::kNew : DotInto::kSum;
  W t[R][C];
  if constexpr (kWide<F>) {
    if constexpr (!F::has_min) StartRows<0, F::offset_shift>(neg_sum, t);
    GroupDots<F, Integers::kWide, kInto, R, C>(record, g, half, x, t);
  } else if constexpr (kLo) {
    GroupDots<F, Integers::kHi, DotInto::kNew256, R, C>(record, g, half, x, t);
    if constexpr (!F::has_min) AddToRows<F::offset_shift>(neg_sum, t);
    GroupDots<F, Integers::kLo, DotInto::kSum, R, C>(record, g, half, x, t);
  } else {
    if constexpr (!F::has_min) StartRows<kTwo ? 8 : 0, F::offset_shift>(neg_sum, t);
    GroupDots<F, Integers::kHi, kInto, R, C>(record, g, half, x, t);
  }
  const float* scale = (kTwo && !kLo ? x.scale_hi : x.scale) + g * x.ld;
  const float* scaled_sum = (F::group16 ? x.scaled_sum16 : x.scaled_sum) + s;
#pragma GCC unroll 2
  for (int c = 0; c < C; ++c) {
    const V d = F::Scale(record[c], half);
    V m = d;
    if constexpr (F::has_min) m = F::Minimum(record[c], half);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      V sum = Fma(ToFloat(t[r][c]), Mul(d, Set(scale[r])), acc[r][c]);
      if constexpr (F::has_min) sum = Fma(m, Set(scaled_sum[r]), sum);
      acc[r][c] = sum;
      PlaceSum(acc[r][c]);
    }
  }
}

// R rows by C tiles, `tile_stride` bytes apart. Sums to out[c kTileRows + r].
template <class F, bool kTwo, int R, int C>
void Block(const uint8_t* tile, int64_t tile_stride, int64_t groups, const QuantisedRows& rows, int64_t row, float (*out)[16]) {
  const RowBlock<R> x(rows, row);
  V acc[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) acc[r][c] = Zero();
  }
  for (int64_t g = 0; g < groups; ++g, tile += F::record_bytes) {
    const uint8_t* record[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      record[c] = tile + c * tile_stride;
      if constexpr (F::streamed) {
#pragma GCC unroll 10
        for (int i = 0; i < F::record_bytes; i += 64) Prefetch(record[c] + kPrefetchBytes + i);
      }
    }
    // The next block's rows of this group lie behind these: the hardware does not see a stream from group to group.
    const int64_t next = (g * x.ld + R) * 32;
#pragma GCC unroll 8
    for (int i = 0; i < R; i += kWide<F> ? 1 : 2) {
      Prefetch(kWide<F> ? static_cast<const void*>(x.wide + next + i * 32) : x.hi + next + i * 32);
    }
    const bool lo = kTwo && x.LoUsed(g);
    if (lo) {
#pragma GCC unroll 4
      for (int i = 0; i < R; i += 2) Prefetch(x.lo + next + i * 32);
    }
#pragma GCC unroll 2
    for (int half = 0; half < F::num_scales; ++half) {
      if (lo) {
        BlockGroup<F, kTwo, kTwo, R, C>(record, g, half, x, acc);
      } else {
        BlockGroup<F, kTwo, false, R, C>(record, g, half, x, acc);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) Store(out[c * kTileRows + r], acc[r][c]);
  }
}

using BlockFn = void (*)(const uint8_t*, int64_t, int64_t, const QuantisedRows&, int64_t, float (*)[16]);

// For 1 to kRows rows.
template <int kRows>
struct BlockFns {
  BlockFn of_rows[kRows + 1] = {};
};

template <class F, bool kTwo, int C, int kRows, int R = kRows>
constexpr void FillBlockFns(BlockFns<kRows>& fns) {
  fns.of_rows[R] = Block<F, kTwo, R, C>;
  if constexpr (R > 1) FillBlockFns<F, kTwo, C, kRows, R - 1>(fns);
}

template <class F, int C, int kRows>
const BlockFns<kRows>& BlockFnsOf(bool two) {
  constexpr auto make = [](auto kTwo) {
    BlockFns<kRows> fns;
    FillBlockFns<F, decltype(kTwo)::value != 0, C, kRows>(fns);
    return fns;
  };
  static constexpr BlockFns<kRows> one_term = make(Count<0>());
  if constexpr (kWide<F>) return one_term;
  static constexpr BlockFns<kRows> two_terms = make(Count<1>());
  return two ? two_terms : one_term;
}

}  // namespace
}  // namespace baton::cpu
