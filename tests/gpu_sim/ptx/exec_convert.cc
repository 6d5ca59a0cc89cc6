// SPDX-License-Identifier: Apache-2.0
// cvt between all integer and floating point types, and of two floats into packed halves.
#include <algorithm>
#include <cmath>

#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"
#include "tests/gpu_sim/ptx/rounding.h"

namespace baton::ptx {
namespace {

// A lane's value on its way: floats as double, which holds all of them exactly; integers as 64 bits, sign-extended.
double LoadFloat(Type type, uint64_t bits) {
  switch (type) {
    case Type::kF16: return HalfToFloat(static_cast<uint16_t>(bits));
    case Type::kBf16: return BFloat16ToFloat(static_cast<uint16_t>(bits));
    case Type::kF32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    default: return std::bit_cast<double>(bits);
  }
}

int64_t LoadInteger(Type type, uint64_t bits) {
  const int shift = 64 - 8 * SizeOf(type);
  return IsSigned(type) ? static_cast<int64_t>(bits << shift) >> shift : static_cast<int64_t>(bits << shift >> shift);
}

uint64_t StoreFloat(Type type, double value, Rounding rounding) {
  switch (type) {
    case Type::kF16: return FloatToHalf(static_cast<float>(RoundTo(value, kHalfFormat, rounding)));
    case Type::kBf16: return FloatToBFloat16(static_cast<float>(RoundTo(value, kBFloat16Format, rounding)));
    case Type::kF32: return std::bit_cast<uint32_t>(static_cast<float>(RoundTo(value, kFloatFormat, rounding)));
    default: return std::bit_cast<uint64_t>(value);
  }
}

struct Bounds {
  double low, high;  // Of an integer type; exact for all but the largest 64-bit values.
};
Bounds BoundsOf(Type type) {
  const int bits = 8 * SizeOf(type);
  if (IsSigned(type)) return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
  return {0.0, std::ldexp(1.0, bits) - 1};
}

// Out of range clamps; NaN is 0, or for 64 bits the bit pattern 0x8000...
uint64_t FloatToInteger(Type type, double value, Rounding rounding) {
  if (std::isnan(value)) return SizeOf(type) == 8 ? uint64_t{1} << 63 : 0;
  const double rounded = RoundToInteger(value, rounding);
  const Bounds bounds = BoundsOf(type);
  if (rounded <= bounds.low) return IsSigned(type) ? uint64_t{1} << (8 * SizeOf(type) - 1) : 0;
  if (rounded >= bounds.high) return IsSigned(type) ? (uint64_t{1} << (8 * SizeOf(type) - 1)) - 1 : ~uint64_t{0} >> (64 - 8 * SizeOf(type));
  return IsSigned(type) ? static_cast<uint64_t>(static_cast<int64_t>(rounded)) : static_cast<uint64_t>(rounded);
}

// 64-bit integers do not fit a double: the part below its precision is folded into its last bit, so that rounding sees it.
double IntegerToDouble(Type type, int64_t value) {
  const bool negative = IsSigned(type) && value < 0;
  uint64_t magnitude = negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  if (magnitude >> 53 != 0 && (magnitude & 0x7ff) != 0) magnitude = (magnitude & ~uint64_t{0x7ff}) | 0x800;
  const auto result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

uint64_t IntegerToFloat(const Instruction& i, int64_t value) {
  if (i.type == Type::kF64) {
    return std::bit_cast<uint64_t>(IsSigned(i.source_type) ? static_cast<double>(value) : static_cast<double>(static_cast<uint64_t>(value)));
  }
  return StoreFloat(i.type, IntegerToDouble(i.source_type, value), i.rounding);
}

uint64_t IntegerToInteger(const Instruction& i, int64_t value) {
  if (!i.saturate) return static_cast<uint64_t>(value);
  const int bits = 8 * SizeOf(i.type);
  const bool source_signed = IsSigned(i.source_type);
  if (IsSigned(i.type)) {
    const int64_t high = static_cast<int64_t>(~uint64_t{0} >> (65 - bits)), low = -high - 1;
    if (!source_signed && value < 0) return static_cast<uint64_t>(high);  // Above 2^63.
    return static_cast<uint64_t>(std::clamp(value, low, high));
  }
  if (source_signed && value < 0) return 0;
  return std::min(static_cast<uint64_t>(value), ~uint64_t{0} >> (64 - bits));
}

uint64_t FloatToFloat(const Instruction& i, double value) {
  if (i.flush && IsSubnormal(value)) value = std::copysign(0.0, value);
  if (i.rounding >= Rounding::kNearestInteger) value = RoundToInteger(value, i.rounding);
  if (i.saturate) value = Saturate(value);
  const Rounding rounding = i.rounding >= Rounding::kNearestInteger ? Rounding::kNearest : i.rounding;
  if (i.flush && i.type == Type::kF32) {
    const double rounded = RoundTo(value, kFloatFormat, rounding);
    if (IsSubnormal(rounded)) value = std::copysign(0.0, value);
  }
  return StoreFloat(i.type, value, rounding);
}

uint64_t ConvertLane(const Instruction& i, uint64_t bits) {
  uint64_t result;
  if (IsFloat(i.source_type)) {
    const double value = LoadFloat(i.source_type, bits);
    if (IsFloat(i.type)) {
      result = FloatToFloat(i, value);
    } else {
      const bool flushed = i.flush && IsSubnormal(value);
      result = FloatToInteger(i.type, flushed ? 0.0 : value, i.rounding);
    }
  } else {
    const int64_t value = LoadInteger(i.source_type, bits);
    result = IsFloat(i.type) ? IntegerToFloat(i, value) : IntegerToInteger(i, value);
  }
  // Narrow integers are extended to the register by their own sign.
  if (!IsFloat(i.type)) result = static_cast<uint64_t>(LoadInteger(i.type, result));
  return result;
}

void Convert(Warp& warp, const Instruction& i, uint32_t lanes) {
  const bool wide_out = SizeOf(i.type) == 8 || i.wide_destination;
  const bool wide_in = SizeOf(i.source_type) == 8 || i.wide_source;
  ForLanes(lanes, [&](int l) {
    const uint64_t bits = wide_in ? warp.Lanes<uint64_t>(i.slot(1))[l] : warp.Lanes<uint32_t>(i.slot(1))[l];
    const uint64_t result = ConvertLane(i, bits);
    if (wide_out) warp.Lanes<uint64_t>(i.slot(0))[l] = result;
    else warp.Lanes<uint32_t>(i.slot(0))[l] = static_cast<uint32_t>(result);
  });
}

// The conversions that kernels are full of, without the general path's branches.
template <typename To, typename From>
void Quick(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (i.wide_destination || i.wide_source) return Convert(warp, i, lanes);
  SlotOf<To>* const d = warp.Lanes<SlotOf<To>>(i.slot(0));
  const SlotOf<From>* const a = warp.Lanes<SlotOf<From>>(i.slot(1));
  ForLanes(lanes, [=](int l) { d[l] = LaneTraits<To>::Store(static_cast<ValueOf<To>>(LaneTraits<From>::Load(a[l]))); });
}

// d = {a (upper), b (lower)}
void PackHalves(Warp& warp, const Instruction& i, uint32_t lanes) {
  const Type half = i.type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  const float* const a = warp.Lanes<float>(i.slot(1));
  const float* const b = warp.Lanes<float>(i.slot(2));
  const bool relu = i.mode == 1;
  const auto one = [&](double value) {
    if (relu && !(value > 0)) value = std::isnan(value) ? value : 0.0;
    return static_cast<uint32_t>(StoreFloat(half, value, i.rounding));
  };
  ForLanes(lanes, [&](int l) { d[l] = one(a[l]) << 16 | one(b[l]); });
}

Handler QuickHandler(const Instruction& i) {
  if (i.saturate || i.flush || i.rounding != Rounding::kNearest) return nullptr;
  const auto is = [&](Type to, Type from) { return i.type == to && i.source_type == from; };
  if (is(Type::kF32, Type::kF16)) return &Quick<float, F16>;
  if (is(Type::kF32, Type::kBf16)) return &Quick<float, BF16>;
  if (is(Type::kF16, Type::kF32)) return &Quick<F16, float>;
  if (is(Type::kBf16, Type::kF32)) return &Quick<BF16, float>;
  if (is(Type::kF32, Type::kS32)) return &Quick<float, int32_t>;
  if (is(Type::kF32, Type::kU32)) return &Quick<float, uint32_t>;
  if (is(Type::kU64, Type::kU32)) return &Quick<uint64_t, uint32_t>;
  if (is(Type::kS64, Type::kS32)) return &Quick<int64_t, int32_t>;
  return nullptr;
}

}  // namespace

bool DecodeConvert(Opcode op, Instruction* i, OperandList* operands) {
  if (!op.Is({"cvt"})) return false;
  bool rounded = op.TakeRounding(i);
  if (const int integer = op.TakeOneOf({"rni", "rzi", "rmi", "rpi"}); integer >= 0) {
    if (rounded) return false;
    i->rounding = static_cast<Rounding>(static_cast<int>(Rounding::kNearestInteger) + integer);
    rounded = true;
  }
  i->flush = op.Take("ftz");
  i->saturate = op.Take("sat");
  i->mode = op.Take("relu") ? 1 : 0;
  i->type = op.TakeType();
  i->source_type = op.TakeType();
  if (!op.Done() || i->type == Type::kNone || i->source_type == Type::kNone) return false;
  if (i->type == Type::kF16x2 || i->type == Type::kBf16x2) {
    if (i->source_type != Type::kF32 || i->rounding > Rounding::kZero || i->saturate || i->flush) return false;
    i->handler = &PackHalves;
    *operands = "d4 s4 s4";
    return true;
  }
  if (i->mode != 0 || i->type == Type::kPred || i->source_type == Type::kPred) return false;
  // A conversion that loses bits must say how.
  const bool to_float = IsFloat(i->type), from_float = IsFloat(i->source_type);
  if (!rounded && ((to_float && !from_float) || (!to_float && from_float))) return false;
  if (to_float && from_float && SizeOf(i->type) < SizeOf(i->source_type) && !rounded) return false;
  i->handler = QuickHandler(*i);
  if (i->handler == nullptr) i->handler = &Convert;
  *operands = "dw sw";
  return true;
}

}  // namespace baton::ptx
