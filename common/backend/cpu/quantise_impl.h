// SPDX-License-Identifier: Apache-2.0
// Rounding of activations to integers over a vec_*.h (QuantisedRows); included by one .cc per instruction set.
//
// Sixteen groups at a time: what is one number per group (largest magnitude, scale, sums) is a lane of a vector, so that
// divisions and reductions are shared. Lanes are the same group of 16 rows, which lie side by side in the arrays that are
// written: one row alone would touch a line of each array for every number. Few rows take 16 groups of a row instead.

namespace baton::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kMinRowLanes = 6;  // Fewer rows would leave too many lanes empty.

// Lane j is group `group + j group_step` of row `row + j row_step`.
struct GroupLanes {
  int count;
  int64_t row, group;
  int64_t row_step, group_step;

  int64_t Row(int j) const { return row + j * row_step; }
  int64_t Group(int j) const { return group + j * group_step; }
};

struct GroupScales {
  alignas(64) float scale[kLanes];    // Of the integers that hi and lo make together.
  alignas(64) float inverse[kLanes];  // What inputs are multiplied by; zero where the integers are zero.
  alignas(64) int32_t shift[kLanes];  // 8 where hi alone holds the integers, of rows with two terms.
  alignas(64) int8_t two[kLanes];     // Whether there are two terms.
};

// `largest`: the groups' largest magnitudes, as bits. Two terms where one is above `limit`.
BATON_ALWAYS_INLINE void FindScales(W largest, V limit, bool may_have_two, GroupScales* out) {
  const V amax = FromBits(largest), zero = Zero();
  V scale = Div(amax, Set(127.0f)), inverse = Div(Set(127.0f), amax), two = zero;
  if (may_have_two) {
    constexpr float kSteps = 32639.0f;  // 127 * 256 + 127
    two = SelectAbove(amax, limit, Set(1.0f), zero);
    scale = SelectAbove(two, zero, Div(amax, Set(kSteps)), Mul(scale, Set(0.00390625f)));
    inverse = SelectAbove(two, zero, Div(Set(kSteps), amax), inverse);
  }
  const V tiny = Set(1e-30f), infinity = Set(__builtin_inff());
  scale = SelectAbove(tiny, amax, zero, scale);
  inverse = SelectAbove(tiny, amax, zero, inverse);
  // Neither NaN nor infinity gets to the conversion to integers: the scale is NaN, the integers zero.
  Store(out->scale, SelectAbove(infinity, amax, scale, Set(__builtin_nanf(""))));
  Store(out->inverse, SelectAbove(infinity, amax, inverse, zero));
  const W flags = ToInt(two);
  StoreI8(out->two, flags);
  Store(reinterpret_cast<float*>(out->shift), FromBits(may_have_two ? SubI(SetI(8), Shl<3>(flags)) : ZeroI()));
}

// A number per lane into an array [groups (or half groups), out.ld], `first` being lane 0's place.
BATON_ALWAYS_INLINE void StoreLanes(V values, const GroupLanes& lanes, int64_t step, float* first) {
  if (lanes.row_step == 1) return StoreFirst(first, values, lanes.count);
  alignas(64) float each[kLanes];
  Store(each, values);
  for (int j = 0; j < lanes.count; ++j) first[j * step] = each[j];
}
BATON_ALWAYS_INLINE void StoreLanes(W values, const GroupLanes& lanes, int64_t step, int32_t* first) {
  StoreLanes(FromBits(values), lanes, step, reinterpret_cast<float*>(first));
}

// What is kept of the sums of the groups' halves.
BATON_ALWAYS_INLINE void StoreSums(W sum_a, W sum_b, const GroupScales& scales, const GroupLanes& lanes,
                                   const QuantisedRows& out) {
  const V scale = Load(scales.scale);
  const W sum = AddI(sum_a, sum_b);
  const int64_t i = lanes.group * out.ld + lanes.row, i16 = 2 * lanes.group * out.ld + lanes.row;
  const int64_t step = lanes.group_step * out.ld;
  StoreLanes(scale, lanes, step, out.scale + i);
  StoreLanes(Mul(scale, ToFloat(sum)), lanes, step, out.scaled_sum + i);
  StoreLanes(SubI(ZeroI(), sum), lanes, step, out.neg_sum + i);
  StoreLanes(Mul(scale, ToFloat(sum_a)), lanes, 2 * step, out.scaled_sum16 + i16);
  StoreLanes(Mul(scale, ToFloat(sum_b)), lanes, 2 * step, out.scaled_sum16 + i16 + out.ld);
  StoreLanes(SubI(ZeroI(), sum_a), lanes, 2 * step, out.neg_sum16 + i16);
  StoreLanes(SubI(ZeroI(), sum_b), lanes, 2 * step, out.neg_sum16 + i16 + out.ld);
  if (out.lo == nullptr) return;
  StoreLanes(Mul(scale, Set(256.0f)), lanes, step, out.scale_hi + i);
  for (int j = 0; j < lanes.count; ++j) out.lo_used[lanes.Group(j) * out.ld + lanes.Row(j)] = static_cast<uint8_t>(scales.two[j]);
}

// Integers that bf16 holds exactly.
inline void StoreBf16Pairs(uint16_t* p, W a) { StoreI16Pairs(reinterpret_cast<int16_t*>(p), Sar<16>(Bits(ToFloat(a)))); }

// QuantisedRows::bf16_hi and bf16_lo at `at`. qa, qb: 256 hi + lo, or hi alone.
inline void StoreBf16(W qa, W qb, const QuantisedRows& out, int64_t at) {
  W ha = qa, hb = qb;
  if (out.bf16_lo != nullptr) {
    ha = Shl<8>(Sar<8>(AddI(qa, SetI(128))));
    hb = Shl<8>(Sar<8>(AddI(qb, SetI(128))));
    StoreBf16Pairs(out.bf16_lo + at, SubI(qa, ha));
    StoreBf16Pairs(out.bf16_lo + at + 16, SubI(qb, hb));
  }
  StoreBf16Pairs(out.bf16_hi + at, ha);
  StoreBf16Pairs(out.bf16_hi + at + 16, hb);
}

// The integers of one group.
BATON_ALWAYS_INLINE void StoreIntegers(W qa, W qb, int64_t at, const QuantisedRows& out) {
  if (out.lo != nullptr) {
    const W ha = Sar<8>(AddI(qa, SetI(128)));
    const W hb = Sar<8>(AddI(qb, SetI(128)));
    StoreI8(out.hi + at, ha);
    StoreI8(out.hi + at + 16, hb);
    StoreI8(out.lo + at, SubI(qa, Shl<8>(ha)));
    StoreI8(out.lo + at + 16, SubI(qb, Shl<8>(hb)));
  } else {
    StoreI8(out.hi + at, qa);
    StoreI8(out.hi + at + 16, qb);
  }
  if (out.wide != nullptr) {
    StoreI16Pairs(out.wide + at, qa);
    StoreI16Pairs(out.wide + at + 16, qb);
  }
  if (out.bf16_hi != nullptr) StoreBf16(qa, qb, out, at);
}

// inputs(row, i): 16 of them from i, a multiple of 16, on. `limit`: of each lane.
template <class Inputs>
BATON_ALWAYS_INLINE void QuantiseLanes(const Inputs& inputs, V limit, const GroupLanes& lanes, const QuantisedRows& out) {
  const W magnitude_mask = SetI(0x7fffffff);
  W each_a[kLanes], each_b[kLanes];
  for (int j = lanes.count; j < kLanes; ++j) each_a[j] = each_b[j] = ZeroI();
  for (int j = 0; j < lanes.count; ++j) {
    const int64_t row = lanes.Row(j), i = lanes.Group(j) * 32;
    each_a[j] = MaxI(AndI(Bits(inputs(row, i)), magnitude_mask), AndI(Bits(inputs(row, i + 16)), magnitude_mask));
  }
  GroupScales scales;
  FindScales(ReduceMaxEach(each_a), limit, out.lo != nullptr, &scales);
  for (int j = 0; j < lanes.count; ++j) {
    const int64_t row = lanes.Row(j), group = lanes.Group(j);
    const V inverse = Set(scales.inverse[j]);
    W qa = ZeroI(), qb = ZeroI();
    if (scales.inverse[j] != 0.0f) {  // Else an input may be what has no integer.
      qa = ShlBy(ToInt(Mul(inputs(row, group * 32), inverse)), scales.shift[j]);
      qb = ShlBy(ToInt(Mul(inputs(row, group * 32 + 16), inverse)), scales.shift[j]);
    }
    StoreIntegers(qa, qb, (group * out.ld + row) * 32, out);
    each_a[j] = qa;
    each_b[j] = qb;
  }
  StoreSums(ReduceAddEach(each_a), ReduceAddEach(each_b), scales, lanes, out);
}

// Above which magnitude a group of the row has two terms.
template <class Inputs>
inline float LimitOf(const Inputs& inputs, int64_t row, const QuantisedRows& out) {
  if (out.lo == nullptr || out.lo_threshold <= 0.0f) return 0.0f;
  V sum = Zero();
  for (int64_t i = 0; i < out.in; i += 16) {
    const V x = inputs(row, i);
    sum = Fma(x, x, sum);
  }
  return out.lo_threshold * __builtin_sqrtf(ReduceAdd(sum) / static_cast<float>(out.in));
}

// Up to kLanes rows.
template <class Inputs>
BATON_ALWAYS_INLINE void QuantiseFewRows(const Inputs& inputs, int64_t row_begin, int num_rows, const QuantisedRows& out) {
  const int64_t groups = out.in / 32;
  alignas(64) float limits[kLanes] = {};
  for (int r = 0; r < num_rows; ++r) limits[r] = LimitOf(inputs, row_begin + r, out);
  if (num_rows >= kMinRowLanes) {
    const V limit = Load(limits);
    for (int64_t g = 0; g < groups; ++g) QuantiseLanes(inputs, limit, {num_rows, row_begin, g, 1, 0}, out);
    return;
  }
  for (int r = 0; r < num_rows; ++r) {
    for (int64_t g = 0; g < groups; g += kLanes) {
      const int count = static_cast<int>(groups - g < kLanes ? groups - g : kLanes);
      QuantiseLanes(inputs, Set(limits[r]), {count, row_begin + r, g, 0, 1}, out);
    }
  }
}

void QuantiseRows(const float* x, int64_t ldx, int64_t row_begin, int64_t row_end, const QuantisedRows* out) {
  const auto inputs = [x, ldx](int64_t row, int64_t i) { return Load(x + row * ldx + i); };
  for (int64_t row = row_begin; row < row_end; row += kLanes) {
    QuantiseFewRows(inputs, row, static_cast<int>(row_end - row < kLanes ? row_end - row : kLanes), *out);
  }
}

void RmsNormQuantiseRows(const float* x, int64_t ldx, const float* weight, float eps, int64_t row_begin,
                         int64_t row_end, const QuantisedRows* out) {
  for (int64_t row = row_begin; row < row_end; row += kLanes) {
    const int num_rows = static_cast<int>(row_end - row < kLanes ? row_end - row : kLanes);
    float scale[kLanes];
    for (int r = 0; r < num_rows; ++r) scale[r] = InverseRms(x + (row + r) * ldx, out->in, eps);
    const auto inputs = [=, &scale](int64_t at, int64_t i) {
      return Mul(Mul(Load(x + at * ldx + i), Set(scale[at - row])), Load(weight + i));
    };
    QuantiseFewRows(inputs, row, num_rows, *out);
  }
}

}  // namespace
}  // namespace baton::cpu
