// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers over a vec_*.h: formats and rows. Included by one .cc per instruction set.
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

// Keeps the compiler from moving loads across: it would fetch a whole group's weights first and spill the sums.
inline void KeepOrder() { __asm__ volatile("" : : : "memory"); }

inline int32_t LoadX4(const int8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

// R rows of the activations from `row`. Of the group arrays, the rows' values for a group lie side by side.
template <int R>
struct RowBlock {
  const int8_t* hi;
  const int8_t* lo;
  int64_t stride1, stride3, stride5, stride7;
  int64_t ld;
  const float* scale;
  const float* scale_hi;
  const float* scaled_sum;
  const float* scaled_sum16;
  const int32_t* neg_sum;
  const int32_t* neg_sum16;
  const uint8_t* lo_used;

  RowBlock(const QuantisedRows& x, int64_t row)
      : hi(x.hi + row * x.in),
        lo(x.lo == nullptr ? nullptr : x.lo + row * x.in),
        stride1(x.in),
        stride3(3 * x.in),
        stride5(5 * x.in),
        stride7(7 * x.in),
        ld(x.ld),
        scale(x.scale + row),
        scale_hi(x.lo == nullptr ? nullptr : x.scale_hi + row),
        scaled_sum(x.scaled_sum + row),
        scaled_sum16(x.scaled_sum16 + row),
        neg_sum(x.neg_sum + row),
        neg_sum16(x.neg_sum16 + row),
        lo_used(x.lo == nullptr ? nullptr : x.lo_used + row) {
    // Opaque, so that the compiler addresses eight rows from five registers instead of keeping eight pointers.
    __asm__("" : "+r"(stride1), "+r"(stride3), "+r"(stride5), "+r"(stride7));
  }
  // Of row r < 8 in hi and lo.
  int64_t Offset(int r) const {
    switch (r) {
      case 0: return 0;
      case 1: return stride1;
      case 2: return 2 * stride1;
      case 3: return stride3;
      case 4: return 4 * stride1;
      case 5: return stride5;
      case 6: return 2 * stride3;
      default: return stride7;
    }
  }
  bool LoUsed(int64_t g) const {
    bool used = false;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) used |= lo_used[g * ld + r] != 0;
    return used;
  }
};

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

// Sums of up to kTileRows rows of two tiles.
constexpr int kTileRows = kSmallRows > kPanelRows ? kSmallRows : kPanelRows;
using TileSums = float[2][kTileRows][16];

template <int n>
struct Count {
  static constexpr int value = n;
};

}  // namespace
}  // namespace baton::cpu
