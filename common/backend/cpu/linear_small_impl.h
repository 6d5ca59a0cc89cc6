// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers for few rows: weights are decoded in registers; included by one .cc per instruction set.

namespace baton::cpu {
namespace {

template <class F>
BATON_ALWAYS_INLINE W DotOf(W t, B w, int32_t x4) {
  return F::four_bit ? DotNibbles(t, w, x4) : Dot(t, w, x4);
}

// Minus offset times the sum of the integers, for a dot product with hi alone (sums of two terms are 256 times as big).
template <bool kTwo, int kShift>
BATON_ALWAYS_INLINE W HiOffset(int32_t neg_sum) {
  if constexpr (kTwo) return Sar<8 - kShift>(SetI(neg_sum));
  return Shl<kShift>(SetI(neg_sum));
}

// t[r][c] += the dot product of one group, or of half `half` of one in formats with groups of 16, with C tiles. Steps are
// outermost, so that the chains run side by side.
template <class F, int R, int C>
BATON_ALWAYS_INLINE void SmallDots(const uint8_t* const (&record)[C], int half, const RowBlock<R>& x, const int8_t* terms,
                      W (&t)[R][C]) {
  constexpr int kPairs = 4 / F::num_scales;
#pragma GCC unroll 4
  for (int i = 0; i < kPairs; ++i) {
    const int s = 2 * kPairs * half + i;
    B low[C], high[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      low[c] = LoadB(record[c] + 64 * (F::four_bit ? i : s));
      if constexpr (F::four_bit) {
        high[c] = HighNibbles(low[c]);
        low[c] = LowNibbles(low[c]);
      } else {
        high[c] = LoadB(record[c] + 64 * (s + kPairs));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t x4 = LoadX4(terms + x.Offset(r) + 4 * s);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = DotOf<F>(t[r][c], low[c], x4);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t x4 = LoadX4(terms + x.Offset(r) + 4 * (s + kPairs));
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = DotOf<F>(t[r][c], high[c], x4);
    }
    KeepOrder();
  }
}

template <class F, bool kTwo, bool kLo, int R, int C>
BATON_ALWAYS_INLINE void SmallGroup(const uint8_t* const (&record)[C], int64_t g, const RowBlock<R>& x, V (&acc)[R][C]) {
  constexpr int kHalves = F::num_scales;
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    const int64_t s = (kHalves * g + half) * x.ld;
    const int32_t* neg_sum = (F::group16 ? x.neg_sum16 : x.neg_sum) + s;
    W t[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const W offset = F::has_min || kLo ? ZeroI() : HiOffset<kTwo, F::offset_shift>(neg_sum[r]);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = offset;
    }
    SmallDots<F, R, C>(record, half, x, x.hi + g * 32, t);
    if constexpr (kLo) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
          t[r][c] = Shl<8>(t[r][c]);
          if constexpr (!F::has_min) t[r][c] = AddI(t[r][c], Shl<F::offset_shift>(SetI(neg_sum[r])));
        }
      }
      SmallDots<F, R, C>(record, half, x, x.lo + g * 32, t);
    }
    const float* scale = (kTwo && !kLo ? x.scale_hi : x.scale) + g * x.ld;
    const float* scaled_sum = (F::group16 ? x.scaled_sum16 : x.scaled_sum) + s;
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      const V d = F::Scale(record[c], half);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r][c] = Fma(ToFloat(t[r][c]), Mul(d, Set(scale[r])), acc[r][c]);
      if constexpr (F::has_min) {
        const V m = F::Minimum(record[c], half);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[r][c] = Fma(m, Set(scaled_sum[r]), acc[r][c]);
      }
    }
  }
}

// R rows by C tiles, `tile_stride` bytes apart.
template <class F, bool kTwo, int R, int C>
void SmallBlock(const uint8_t* tile, int64_t tile_stride, int64_t groups, const QuantisedRows& rows, int64_t row,
                float (*out)[16]) {
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
#pragma GCC unroll 10
      for (int i = 0; i < F::record_bytes; i += 64) Prefetch(record[c] + kPrefetchBytes + i);
    }
    if (kTwo && x.LoUsed(g)) {
      SmallGroup<F, kTwo, kTwo, R, C>(record, g, x, acc);
    } else {
      SmallGroup<F, kTwo, false, R, C>(record, g, x, acc);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) Store(out[c * kTileRows + r], acc[r][c]);
  }
}

template <class F, bool kTwo, int C>
void SmallRows(const uint8_t* tile, int64_t tile_stride, int64_t groups, const QuantisedRows& x, int64_t row,
               int num_rows, float (*out)[16]) {
  int r = 0;
  auto run = [&](auto count) {
    constexpr int kRows = decltype(count)::value;
    for (; r + kRows <= num_rows; r += kRows) {
      SmallBlock<F, kTwo, kRows, C>(tile, tile_stride, groups, x, row + r, out + r);
    }
  };
  if constexpr (kSmallRows >= 8) run(Count<8>());
  if constexpr (kSmallRows >= 4) run(Count<4>());
  run(Count<2>());
  run(Count<1>());
}

using SmallFn = void (*)(const uint8_t*, int64_t, int64_t, const QuantisedRows&, int64_t, int, float (*)[16]);

template <class F, int C>
SmallFn SmallOf(bool two) {
  return two ? SmallRows<F, true, C> : SmallRows<F, false, C>;
}

// Null for the rare formats, which take the expanded form at any number of rows.
template <int C>
SmallFn SmallFunction(QuantFormat format, bool two) {
  switch (format) {
    case QuantFormat::k4AsymF16: return SmallOf<Q4AsymF16, C>(two);
    case QuantFormat::k4SymF16: return SmallOf<Q4SymF16, C>(two);
    case QuantFormat::k4AsymF32: return SmallOf<Q4AsymF32, C>(two);
    case QuantFormat::k8SymF16: return SmallOf<Q8SymF16, C>(two);
    case QuantFormat::k8SymF32G16: return SmallOf<Q8SymF32G16, C>(two);
    default: return nullptr;
  }
}

}  // namespace
}  // namespace baton::cpu
