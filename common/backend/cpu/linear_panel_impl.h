// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers for many rows: tiles are expanded once and used for all rows; included by one .cc per instruction set.

namespace baton::cpu {
namespace {

template <class F>
void ExpandTile(const uint8_t* tile, int64_t groups, uint8_t* out) {
  for (int64_t g = 0; g < groups; ++g, tile += F::record_bytes, out += kPanelRecord) {
    B w[8];
    F::Decode(tile, w);
    for (int s = 0; s < 8; ++s) {
      // The expanded form has one offset, 128: q + 120 - 128 = q - 8.
      StoreB(out + 64 * s, F::four_bit && !F::has_min ? AddB(w[s], 120) : w[s]);
    }
    float* scales = reinterpret_cast<float*>(out + 512);
    for (int half = 0; half < F::num_scales; ++half) {
      Store(scales + 16 * half, F::Scale(tile, half));
      if constexpr (F::has_min) Store(scales + 32 + 16 * half, F::Minimum(tile, half));
    }
  }
}

void Expand(QuantFormat format, const uint8_t* tile, int64_t groups, uint8_t* out) {
  switch (format) {
    case QuantFormat::k4AsymF16: return ExpandTile<Q4AsymF16>(tile, groups, out);
    case QuantFormat::k4SymF16: return ExpandTile<Q4SymF16>(tile, groups, out);
    case QuantFormat::k4AsymF32: return ExpandTile<Q4AsymF32>(tile, groups, out);
    case QuantFormat::k8SymF16: return ExpandTile<Q8SymF16>(tile, groups, out);
    case QuantFormat::k8SymF32: return ExpandTile<Q8SymF32>(tile, groups, out);
    case QuantFormat::k8AsymF32: return ExpandTile<Q8AsymF32>(tile, groups, out);
    case QuantFormat::k8SymF32G16: return ExpandTile<Q8SymF32G16>(tile, groups, out);
    case QuantFormat::k8AsymF32G16: return ExpandTile<Q8AsymF32G16>(tile, groups, out);
  }
}

template <int R, int C>
BATON_ALWAYS_INLINE void DotBlock(const uint8_t* const (&w)[C], const RowBlock<R>& x, const int8_t* terms, int steps, W (&t)[R][C]) {
#pragma GCC unroll 8
  for (int s = 0; s < steps; ++s) {
    B b[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) b[c] = LoadB(w[c] + 64 * s);
    KeepOrder();
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const int32_t x4 = LoadX4(terms + x.Offset(r) + 4 * s);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = Dot(t[r][c], b[c], x4);
    }
  }
}

// One half group (or whole group) of R rows by C tiles of expanded weights. kLo: some row has a second term here.
template <bool kMin, bool kGroup16, bool kTwo, bool kLo, int R, int C>
BATON_ALWAYS_INLINE void PanelGroup(const uint8_t* panel, int64_t panel_stride, int64_t g, int half, const RowBlock<R>& x,
                       V (&acc)[R][C]) {
  constexpr int kSteps = kGroup16 ? 4 : 8;
  const uint8_t* w[C];
#pragma GCC unroll 2
  for (int c = 0; c < C; ++c) w[c] = panel + c * panel_stride + 64 * kSteps * half;
  const int64_t k = g * 32 + 16 * half;
  const int64_t s = (kGroup16 ? 2 * g + half : g) * x.ld;
  const int32_t* neg_sum = (kGroup16 ? x.neg_sum16 : x.neg_sum) + s;
  W t[R][C];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const W offset = kMin || kLo ? ZeroI() : HiOffset<kTwo, 7>(neg_sum[r]);
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) t[r][c] = offset;
  }
  DotBlock<R, C>(w, x, x.hi + k, kSteps, t);
  if constexpr (kLo) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) {
        t[r][c] = Shl<8>(t[r][c]);
        if constexpr (!kMin) t[r][c] = AddI(t[r][c], Shl<7>(SetI(neg_sum[r])));
      }
    }
    DotBlock<R, C>(w, x, x.lo + k, kSteps, t);
  }
  const float* scale = (kTwo && !kLo ? x.scale_hi : x.scale) + g * x.ld;
  const float* scaled_sum = (kGroup16 ? x.scaled_sum16 : x.scaled_sum) + s;
#pragma GCC unroll 2
  for (int c = 0; c < C; ++c) {
    const float* scales = reinterpret_cast<const float*>(panel + c * panel_stride + 512) + 16 * half;
    const V d = Load(scales);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) acc[r][c] = Fma(ToFloat(t[r][c]), Mul(d, Set(scale[r])), acc[r][c]);
    if constexpr (kMin) {
      const V m = Load(scales + 32);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) acc[r][c] = Fma(m, Set(scaled_sum[r]), acc[r][c]);
    }
  }
}

template <bool kMin, bool kGroup16, bool kTwo, int R, int C>
void PanelBlock(const uint8_t* panel, int64_t panel_stride, int64_t groups, const QuantisedRows& rows, int64_t row,
                TileSums& out) {
  const RowBlock<R> x(rows, row);
  V acc[R][C];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) acc[r][c] = Zero();
  }
  for (int64_t g = 0; g < groups; ++g, panel += kPanelRecord) {
    const bool lo = kTwo && x.LoUsed(g);
#pragma GCC unroll 2
    for (int half = 0; half < (kGroup16 ? 2 : 1); ++half) {
      if (lo) {
        PanelGroup<kMin, kGroup16, kTwo, kTwo, R, C>(panel, panel_stride, g, half, x, acc);
      } else {
        PanelGroup<kMin, kGroup16, kTwo, false, R, C>(panel, panel_stride, g, half, x, acc);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) Store(out[c][r], acc[r][c]);
  }
}

template <bool kMin, bool kGroup16, bool kTwo, int C, int R = kPanelRows>
void PanelRows(const uint8_t* panel, int64_t stride, int64_t groups, const QuantisedRows& x, int64_t row, int num_rows,
               TileSums& out) {
  if (num_rows == R) return PanelBlock<kMin, kGroup16, kTwo, R, C>(panel, stride, groups, x, row, out);
  if constexpr (R > 1) PanelRows<kMin, kGroup16, kTwo, C, R - 1>(panel, stride, groups, x, row, num_rows, out);
}

using PanelFn = void (*)(const uint8_t*, int64_t, int64_t, const QuantisedRows&, int64_t, int, TileSums&);

template <int C>
PanelFn PanelFunction(QuantFormat format, bool two) {
  switch (format) {
    case QuantFormat::k8SymF32G16: return two ? PanelRows<false, true, true, C> : PanelRows<false, true, false, C>;
    case QuantFormat::k8AsymF32G16: return two ? PanelRows<true, true, true, C> : PanelRows<true, true, false, C>;
    case QuantFormat::k4AsymF16:
    case QuantFormat::k4AsymF32:
    case QuantFormat::k8AsymF32: return two ? PanelRows<true, false, true, C> : PanelRows<true, false, false, C>;
    default: return two ? PanelRows<false, false, true, C> : PanelRows<false, false, false, C>;
  }
}

}  // namespace
}  // namespace baton::cpu
