// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers over a vec_*.h: formats and rows. Included by one .cc per instruction set.
//
// One output of one row, in every variant below: for each group in order, t = the integer dot product (minus offset times
// the sum of the activations), acc = fma(t, d * scale, acc), and in asymmetric formats acc = fma(m, scaled_sum, acc).
// Two-term activations make t = 256 (hi . w) + lo . w, still exact. Where no row of a block has a second term in a group,
// t = hi . w with 256 scale instead of scale: the same bits, as factors of 256 are exact.
//
// Few rows: weights are decoded in registers, once for up to kSmallRows rows, and streamed. Many rows: a tile is expanded
// once to bytes and fp32 scales in scratch (first-level or second-level cache) and used for all rows. Both are the block
// kernel of linear_block_impl.h over another source of weights.

namespace baton::cpu {
namespace {

// How far ahead of the stream of weights to fetch: past what the hardware does on its own at page ends.
constexpr int kPrefetchBytes = 2560;

// Keeps the compiler from moving loads across: it would fetch a whole group's weights first and spill the sums.
inline void KeepOrder() { __asm__ volatile("" : : : "memory"); }

// Keeps the compiler from computing a pointer's many offsets ahead, for all who use it, and spilling them.
template <typename T>
BATON_ALWAYS_INLINE T* Opaque(T* p) {
  __asm__("" : "+r"(p));
  return p;
}

inline int32_t LoadX4(const int8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

// R rows of the activations from `row`. A group's rows lie side by side, in every array.
template <int R>
struct RowBlock {
  const int8_t* hi;
  const int8_t* lo;
  const int16_t* wide;
  int64_t ld;
  const float* scale;
  const float* scale_hi;
  const float* scaled_sum;
  const float* scaled_sum16;
  const int32_t* neg_sum;
  const int32_t* neg_sum16;
  const uint8_t* lo_used;

  RowBlock(const QuantisedRows& x, int64_t row)
      : hi(x.hi + row * 32),
        lo(x.lo == nullptr ? nullptr : x.lo + row * 32),
        wide(x.wide == nullptr ? nullptr : x.wide + row * 32),
        ld(x.ld),
        scale(x.scale + row),
        scale_hi(x.lo == nullptr ? nullptr : x.scale_hi + row),
        scaled_sum(x.scaled_sum + row),
        scaled_sum16(x.scaled_sum16 + row),
        neg_sum(x.neg_sum + row),
        neg_sum16(x.neg_sum16 + row),
        lo_used(x.lo == nullptr ? nullptr : x.lo_used + row) {}
  // Two loads that overlap, instead of R.
  bool LoUsed(int64_t g) const {
    constexpr int kBytes = R >= 8 ? 8 : R >= 4 ? 4 : R >= 2 ? 2 : 1;
    static_assert(R <= 2 * kBytes);
    uint64_t first = 0, last = 0;
    __builtin_memcpy(&first, lo_used + g * ld, kBytes);
    __builtin_memcpy(&last, lo_used + g * ld + R - kBytes, kBytes);
    return (first | last) != 0;
  }
};

// Which of a row's integers a dot product is with.
enum class Integers : uint8_t { kHi, kLo, kWide };

// What becomes of the dot product of a group.
enum class DotInto : uint8_t {
  kNew,     // t = dot
  kNew256,  // t = 256 dot
  kSum,     // t += dot
};

// ---- Formats --------------------------------------------------------------------------------------------------------

template <bool kFourBit, bool kHasMin, bool kHalfScales, bool kGroup16>
struct Format {
  static constexpr bool four_bit = kFourBit, has_min = kHasMin, group16 = kGroup16;
  static constexpr bool packed_nibbles = kFourBit, streamed = true;
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
  // The weights of step s: 4 s .. 4 s + 3 of the group's 32.
  static inline B Step(const uint8_t* record, int s) {
    if constexpr (!kFourBit) return LoadB(record + 64 * s);
    return s < 4 ? LowNibbles(LoadB(record + 64 * s)) : HighNibbles(LoadB(record + 64 * (s - 4)));
  }
};

// What a tile is expanded to: a byte per weight, fp32 scales.
template <bool kFourBit, bool kHasMin, bool kGroup16>
struct Expanded {
  static constexpr bool four_bit = kFourBit, has_min = kHasMin, group16 = kGroup16;
  static constexpr bool packed_nibbles = false, streamed = false;
  static constexpr int offset_shift = kFourBit ? 3 : 7;
  static constexpr int num_scales = kGroup16 ? 2 : 1;
  static constexpr int record_bytes = 512 + num_scales * (kHasMin ? 2 : 1) * 64;

  static inline V Scale(const uint8_t* record, int half) {
    return Load(reinterpret_cast<const float*>(record + 512 + 64 * half));
  }
  static inline V Minimum(const uint8_t* record, int half) { return Scale(record, num_scales + half); }
  static inline B Step(const uint8_t* record, int s) { return LoadB(record + 64 * s); }
};

template <class F>
using ExpandedOf = Expanded<F::four_bit, F::has_min, F::group16>;

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
