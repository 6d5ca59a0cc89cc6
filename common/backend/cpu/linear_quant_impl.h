// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers over a vec_*.h; included by one .cc per instruction set.
//
// One output of one row, in every variant below: for each group in order, t = the integer dot product (minus offset times
// the sum of the activations), acc = fma(t, d * scale, acc), and in asymmetric formats acc = fma(m, scaled_sum, acc).
// Two-term activations make t = 256 (hi . w) + lo . w, still exact. Where no row of a block has a second term in a group,
// t = hi . w with 256 scale instead of scale: the same bits, as factors of 256 are exact.
//
// Few rows: weights are decoded in registers, once for up to kSmallRows rows, and streamed. Many rows: a tile is expanded
// once to bytes and fp32 scales in scratch (first-level or second-level cache) and used for all rows.

namespace baton::cpu {
namespace {

// A record of the expanded form: 512 bytes of q, then scales and minima of two halves (groups of 16) or one.
constexpr int kPanelRecord = 512 + 4 * 64;
// How far ahead of the stream of weights to fetch: past what the hardware does on its own at page ends.
constexpr int kPrefetchBytes = 2560;

inline int32_t LoadX4(const int8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

// Pointers to one row of the activations.
struct RowView {
  const int8_t* hi;
  const int8_t* lo;
  const float* scale;
  const float* scale_hi;
  const float* scaled_sum;
  const int32_t* neg_sum;
  const float* scaled_sum16;
  const int32_t* neg_sum16;
  const uint8_t* lo_used;
};

inline RowView ViewRow(const QuantisedRows& x, int64_t row) {
  const int64_t groups = x.in / 32;
  return {x.hi + row * x.in,
          x.lo == nullptr ? nullptr : x.lo + row * x.in,
          x.scale + row * groups,
          x.lo == nullptr ? nullptr : x.scale_hi + row * groups,
          x.scaled_sum + row * groups,
          x.neg_sum + row * groups,
          x.scaled_sum16 + row * groups * 2,
          x.neg_sum16 + row * groups * 2,
          x.lo == nullptr ? nullptr : x.lo_used + row * groups};
}

// ---- Formats --------------------------------------------------------------------------------------------------------

template <bool kFourBit, bool kHasMin, bool kHalfScales, bool kGroup16>
struct Format {
  static constexpr bool four_bit = kFourBit, has_min = kHasMin, group16 = kGroup16;
  static constexpr int offset_shift = kFourBit ? 3 : 7;
  static constexpr int quant_bytes = kFourBit ? 256 : 512;
  static constexpr int scale_bytes = kHalfScales ? 32 : 64;
  static constexpr int num_scales = kGroup16 ? 2 : 1;
  static constexpr int record_bytes = quant_bytes + num_scales * (kHasMin ? 2 : 1) * scale_bytes;

  static inline V LoadScale(const uint8_t* p) {
    if constexpr (kHalfScales) return LoadF16(p);
    return Load(reinterpret_cast<const float*>(p));
  }
  static inline V Scale(const uint8_t* record, int half) { return LoadScale(record + quant_bytes + half * scale_bytes); }
  static inline V Minimum(const uint8_t* record, int half) {
    return LoadScale(record + quant_bytes + (num_scales + half) * scale_bytes);
  }
  static inline void Decode(const uint8_t* record, B (&w)[8]) {
    if constexpr (kFourBit) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const B packed = LoadB(record + 64 * i);
        w[i] = LowNibbles(packed);
        w[i + 4] = HighNibbles(packed);
      }
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) w[i] = LoadB(record + 64 * i);
    }
  }
};
using Q4AsymF16 = Format<true, true, true, false>;
using Q4SymF16 = Format<true, false, true, false>;
using Q4AsymF32 = Format<true, true, false, false>;
using Q8SymF16 = Format<false, false, true, false>;
using Q8SymF32 = Format<false, false, false, false>;
using Q8AsymF32 = Format<false, true, false, false>;
using Q8SymF32G16 = Format<false, false, false, true>;
using Q8AsymF32G16 = Format<false, true, false, true>;

// ---- Few rows -------------------------------------------------------------------------------------------------------

template <class F>
inline W DotOf(W t, B w, int32_t x4) {
  return F::four_bit ? DotNibbles(t, w, x4) : Dot(t, w, x4);
}

// Minus offset times the sum of the integers, for a dot product with hi alone (sums of two terms are 256 times as big).
template <bool kTwo, int kShift>
inline W HiOffset(int32_t neg_sum) {
  if constexpr (kTwo) return Sar<8 - kShift>(SetI(neg_sum));
  return Shl<kShift>(SetI(neg_sum));
}

// One row's integer dot product over `kSteps` steps from `first`.
template <class F, bool kTwo, int kSteps>
inline W DotSteps(const B (&w)[8], const RowView& x, int64_t k, int first, int32_t neg_sum, bool lo) {
  W t = F::has_min ? ZeroI() : HiOffset<kTwo, F::offset_shift>(neg_sum);
  if (kTwo && lo) t = ZeroI();
#pragma GCC unroll 8
  for (int s = first; s < first + kSteps; ++s) t = DotOf<F>(t, w[s], LoadX4(x.hi + k + 4 * s));
  if (kTwo && lo) {
    t = Shl<8>(t);
    if constexpr (!F::has_min) t = AddI(t, Shl<F::offset_shift>(SetI(neg_sum)));
#pragma GCC unroll 8
    for (int s = first; s < first + kSteps; ++s) t = DotOf<F>(t, w[s], LoadX4(x.lo + k + 4 * s));
  }
  return t;
}

template <class F, bool kTwo, int R>
inline void SmallGroup(const uint8_t* record, int64_t g, const RowView (&x)[R], bool lo, V (&acc)[R]) {
  constexpr int kHalves = F::num_scales;
  B w[8];
  F::Decode(record, w);
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    const V d = F::Scale(record, half);
    const int64_t s = kHalves * g + half;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t neg_sum = F::group16 ? x[r].neg_sum16[s] : x[r].neg_sum[s];
      const W t = DotSteps<F, kTwo, 8 / kHalves>(w, x[r], g * 32, 8 / kHalves * half, neg_sum, lo);
      acc[r] = Fma(ToFloat(t), Mul(d, Set(kTwo && !lo ? x[r].scale_hi[g] : x[r].scale[g])), acc[r]);
      if constexpr (F::has_min) {
        acc[r] = Fma(F::Minimum(record, half), Set(F::group16 ? x[r].scaled_sum16[s] : x[r].scaled_sum[s]), acc[r]);
      }
    }
  }
}

template <class F, bool kTwo, int R>
void SmallBlock(const uint8_t* tile, int64_t groups, const RowView* rows, float (*out)[16]) {
  RowView x[R];
  V acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    x[r] = rows[r];
    acc[r] = Zero();
  }
  for (int64_t g = 0; g < groups; ++g, tile += F::record_bytes) {
#pragma GCC unroll 10
    for (int i = 0; i < F::record_bytes; i += 64) Prefetch(tile + kPrefetchBytes + i);
    bool lo = false;
    if constexpr (kTwo) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) lo |= x[r].lo_used[g] != 0;
    }
    lo ? SmallGroup<F, kTwo, R>(tile, g, x, true, acc) : SmallGroup<F, kTwo, R>(tile, g, x, false, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) Store(out[r], acc[r]);
}

template <class F, bool kTwo>
void SmallRows(const uint8_t* tile, int64_t groups, const RowView* rows, int num_rows, float (*out)[16]) {
  int r = 0;
  if constexpr (kSmallRows >= 8) {
    for (; r + 8 <= num_rows; r += 8) SmallBlock<F, kTwo, 8>(tile, groups, rows + r, out + r);
  }
  if constexpr (kSmallRows >= 4) {
    for (; r + 4 <= num_rows; r += 4) SmallBlock<F, kTwo, 4>(tile, groups, rows + r, out + r);
  }
  for (; r + 2 <= num_rows; r += 2) SmallBlock<F, kTwo, 2>(tile, groups, rows + r, out + r);
  for (; r < num_rows; ++r) SmallBlock<F, kTwo, 1>(tile, groups, rows + r, out + r);
}

using SmallFn = void (*)(const uint8_t*, int64_t, const RowView*, int, float (*)[16]);

// Null for the rare formats, which take the expanded form at any number of rows.
SmallFn SmallFunction(QuantFormat format, bool two) {
  switch (format) {
    case QuantFormat::k4AsymF16: return two ? SmallRows<Q4AsymF16, true> : SmallRows<Q4AsymF16, false>;
    case QuantFormat::k4SymF16: return two ? SmallRows<Q4SymF16, true> : SmallRows<Q4SymF16, false>;
    case QuantFormat::k4AsymF32: return two ? SmallRows<Q4AsymF32, true> : SmallRows<Q4AsymF32, false>;
    case QuantFormat::k8SymF16: return two ? SmallRows<Q8SymF16, true> : SmallRows<Q8SymF16, false>;
    case QuantFormat::k8SymF32G16: return two ? SmallRows<Q8SymF32G16, true> : SmallRows<Q8SymF32G16, false>;
    default: return nullptr;
  }
}

// ---- Many rows ------------------------------------------------------------------------------------------------------

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
inline void DotBlock(const uint8_t* const (&w)[C], const int8_t* const (&x)[R], int64_t k, int steps, W (&t)[R][C]) {
#pragma GCC unroll 8
  for (int s = 0; s < steps; ++s) {
    B b[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) b[c] = LoadB(w[c] + 64 * s);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const int32_t x4 = LoadX4(x[r] + k + 4 * s);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) t[r][c] = Dot(t[r][c], b[c], x4);
    }
  }
}

using TileSums = float[2][kSmallRows > kPanelRows ? kSmallRows : kPanelRows][16];

// One half group (or whole group) of R rows by C tiles of expanded weights. kLo: some row has a second term here.
template <bool kMin, bool kGroup16, bool kTwo, bool kLo, int R, int C>
inline void PanelGroup(const uint8_t* panel, int64_t panel_stride, int64_t g, int half, const RowView* rows,
                       const int8_t* const (&hi)[R], const int8_t* const (&lo)[R], V (&acc)[R][C]) {
  constexpr int kSteps = kGroup16 ? 4 : 8;
  const uint8_t* w[C];
#pragma GCC unroll 2
  for (int c = 0; c < C; ++c) w[c] = panel + c * panel_stride + 64 * kSteps * half;
  const int64_t k = g * 32 + 16 * half;
  const int64_t s = kGroup16 ? 2 * g + half : g;
  W t[R][C];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const W offset = kMin || kLo ? ZeroI() : HiOffset<kTwo, 7>(kGroup16 ? rows[r].neg_sum16[s] : rows[r].neg_sum[s]);
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) t[r][c] = offset;
  }
  DotBlock<R, C>(w, hi, k, kSteps, t);
  if constexpr (kLo) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) {
        t[r][c] = Shl<8>(t[r][c]);
        if constexpr (!kMin) {
          t[r][c] = AddI(t[r][c], Shl<7>(SetI(kGroup16 ? rows[r].neg_sum16[s] : rows[r].neg_sum[s])));
        }
      }
    }
    DotBlock<R, C>(w, lo, k, kSteps, t);
  }
#pragma GCC unroll 2
  for (int c = 0; c < C; ++c) {
    const float* scales = reinterpret_cast<const float*>(panel + c * panel_stride + 512) + 16 * half;
    const V d = Load(scales);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const float scale = kTwo && !kLo ? rows[r].scale_hi[g] : rows[r].scale[g];
      acc[r][c] = Fma(ToFloat(t[r][c]), Mul(d, Set(scale)), acc[r][c]);
    }
    if constexpr (kMin) {
      const V m = Load(scales + 32);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        acc[r][c] = Fma(m, Set(kGroup16 ? rows[r].scaled_sum16[s] : rows[r].scaled_sum[s]), acc[r][c]);
      }
    }
  }
}

template <bool kMin, bool kGroup16, bool kTwo, int R, int C>
void PanelBlock(const uint8_t* panel, int64_t panel_stride, int64_t groups, const RowView* rows, TileSums& out) {
  const int8_t* hi[R];
  const int8_t* lo[R];
  V acc[R][C];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    hi[r] = rows[r].hi;
    lo[r] = rows[r].lo;
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) acc[r][c] = Zero();
  }
  for (int64_t g = 0; g < groups; ++g, panel += kPanelRecord) {
    bool any_lo = false;
    if constexpr (kTwo) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) any_lo |= rows[r].lo_used[g] != 0;
    }
#pragma GCC unroll 2
    for (int half = 0; half < (kGroup16 ? 2 : 1); ++half) {
      if (kTwo && any_lo) {
        PanelGroup<kMin, kGroup16, kTwo, kTwo, R, C>(panel, panel_stride, g, half, rows, hi, lo, acc);
      } else {
        PanelGroup<kMin, kGroup16, kTwo, false, R, C>(panel, panel_stride, g, half, rows, hi, lo, acc);
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
void PanelRows(const uint8_t* panel, int64_t stride, int64_t groups, const RowView* rows, int num_rows,
               TileSums& out) {
  if (num_rows == R) return PanelBlock<kMin, kGroup16, kTwo, R, C>(panel, stride, groups, rows, out);
  if constexpr (R > 1) PanelRows<kMin, kGroup16, kTwo, C, R - 1>(panel, stride, groups, rows, num_rows, out);
}

using PanelFn = void (*)(const uint8_t*, int64_t, int64_t, const RowView*, int, TileSums&);

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

// ---- Driver ---------------------------------------------------------------------------------------------------------

// Writes the sums of `num_rows` rows of one tile (or of a gate tile and its up tile).
void WriteTile(const QuantLinearArgs& args, int64_t tile, int64_t row, int num_rows, const float (*sums)[16],
               const float (*up_sums)[16]) {
  const int64_t left = args.w->out - 16 * tile;
  const int lanes = left < 16 ? static_cast<int>(left) : 16;
  for (int r = 0; r < num_rows; ++r) {
    float* y = args.y + (row + r) * args.ldy + 16 * tile;
    V value = Load(sums[r]);
    if (args.epilogue == Epilogue::kSiluMul) value = Mul(Silu(value), Load(up_sums[r]));
    if (args.epilogue == Epilogue::kAccumulate) value = Add(LoadFirst(y, lanes), value);
    StoreFirst(y, value, lanes);
  }
}

struct TilePair {
  int64_t first, second;  // second < 0: none
};

void SmallTiles(const QuantLinearArgs& args, SmallFn small, TilePair tiles) {
  const QuantMatrix& w = *args.w;
  const int64_t groups = w.in / 32;
  const int num_rows = static_cast<int>(args.row_end - args.row_begin);
  alignas(64) TileSums sums;
  RowView rows[kSmallRows];
  for (int r = 0; r < num_rows; ++r) rows[r] = ViewRow(args.x, args.row_begin + r);
  small(w.data + tiles.first * groups * w.record_bytes, groups, rows, num_rows, sums[0]);
  if (tiles.second >= 0) small(w.data + tiles.second * groups * w.record_bytes, groups, rows, num_rows, sums[1]);
  if (args.epilogue == Epilogue::kSiluMul) return WriteTile(args, tiles.first, args.row_begin, num_rows, sums[0], sums[1]);
  WriteTile(args, tiles.first, args.row_begin, num_rows, sums[0], nullptr);
  if (tiles.second >= 0) WriteTile(args, tiles.second, args.row_begin, num_rows, sums[1], nullptr);
}

void PanelTiles(const QuantLinearArgs& args, bool two, TilePair tiles) {
  const QuantMatrix& w = *args.w;
  const int64_t groups = w.in / 32;
  const int64_t stride = groups * kPanelRecord;
  const bool pair = tiles.second >= 0;
  Expand(w.format, w.data + tiles.first * groups * w.record_bytes, groups, args.scratch);
  if (pair) Expand(w.format, w.data + tiles.second * groups * w.record_bytes, groups, args.scratch + stride);
  const PanelFn one = PanelFunction<1>(w.format, two);
  const PanelFn both = kPanelTiles == 2 ? PanelFunction<kPanelTiles>(w.format, two) : nullptr;
  alignas(64) TileSums sums;
  RowView rows[kPanelRows];
  for (int64_t row = args.row_begin; row < args.row_end; row += kPanelRows) {
    const int num_rows = static_cast<int>(args.row_end - row < kPanelRows ? args.row_end - row : kPanelRows);
    for (int r = 0; r < num_rows; ++r) rows[r] = ViewRow(args.x, row + r);
    if (pair && both != nullptr) {
      both(args.scratch, stride, groups, rows, num_rows, sums);
    } else {
      one(args.scratch, stride, groups, rows, num_rows, sums);
      if (pair) one(args.scratch + stride, stride, groups, rows, num_rows, *reinterpret_cast<TileSums*>(&sums[1]));
    }
    if (args.epilogue == Epilogue::kSiluMul) {
      WriteTile(args, tiles.first, row, num_rows, sums[0], sums[1]);
    } else {
      WriteTile(args, tiles.first, row, num_rows, sums[0], nullptr);
      if (pair) WriteTile(args, tiles.second, row, num_rows, sums[1], nullptr);
    }
  }
}

void LinearQuantised(const QuantLinearArgs& args) {
  const bool two = args.x.lo != nullptr;
  const bool silu = args.epilogue == Epilogue::kSiluMul;
  const SmallFn small = SmallFunction(args.w->format, two);
  const bool few = args.row_end - args.row_begin <= kSmallRows && small != nullptr;
  for (int64_t tile = args.tile_begin; tile < args.tile_end;) {
    TilePair tiles{tile, -1};
    if (silu) {
      tiles.second = tile + args.w->num_tiles / 2;
    } else if (tile + 1 < args.tile_end) {
      tiles.second = tile + 1;
    }
    few ? SmallTiles(args, small, tiles) : PanelTiles(args, two, tiles);
    tile += silu || tiles.second < 0 ? 1 : 2;
  }
}

}  // namespace
}  // namespace baton::cpu
