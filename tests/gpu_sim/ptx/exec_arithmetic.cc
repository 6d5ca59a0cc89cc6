// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, dp4a.
#include <algorithm>
#include <limits>

#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

// Wraps, as the device does; small types are widened first so that no signed overflow happens.
template <typename T> T Add(T a, T b) { return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b)); }
template <typename T> T Sub(T a, T b) { return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b)); }
template <typename T> T MulLow(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(static_cast<Unsigned<T>>(a)) * static_cast<uint64_t>(static_cast<Unsigned<T>>(b)));
}
template <typename T> T MadLow(T a, T b, T c) { return Add<T>(MulLow<T>(a, b), c); }
template <typename T> T MulHigh(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}
template <typename T> T MadHigh(T a, T b, T c) { return Add<T>(MulHigh<T>(a, b), c); }
template <typename T> T Min(T a, T b) { return std::min(a, b); }
template <typename T> T Max(T a, T b) { return std::max(a, b); }
// By zero the result is unspecified: all ones, as devices give.
template <typename T> T Div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub<T>(0, a);
  return static_cast<T>(a / b);
}
template <typename T> T Rem(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
template <typename T> T Neg(T a) { return Sub<T>(0, a); }
template <typename T> T Abs(T a) { return a < 0 ? Sub<T>(0, a) : a; }
template <typename T> T AddSaturated(T a, T b) {
  const int64_t sum = int64_t{a} + int64_t{b};
  return static_cast<T>(std::clamp<int64_t>(sum, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}
template <typename T> T SubSaturated(T a, T b) {
  const int64_t difference = int64_t{a} - int64_t{b};
  return static_cast<T>(std::clamp<int64_t>(difference, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

// mul.wide, mad.wide: T into a type twice as wide.
template <typename T, typename Wide, bool kAdd>
void MulWide(Warp& warp, const Instruction& i, uint32_t lanes) {
  SlotOf<Wide>* const d = warp.Lanes<SlotOf<Wide>>(i.slot(0));
  const SlotOf<T>* const a = warp.Lanes<SlotOf<T>>(i.slot(1));
  const SlotOf<T>* const b = warp.Lanes<SlotOf<T>>(i.slot(2));
  const SlotOf<Wide>* const c = kAdd ? warp.Lanes<SlotOf<Wide>>(i.slot(3)) : nullptr;
  ForLanes(lanes, [=](int l) {
    Wide product = static_cast<Wide>(static_cast<Wide>(LaneTraits<T>::Load(a[l])) * static_cast<Wide>(LaneTraits<T>::Load(b[l])));
    if constexpr (kAdd) product = Add<Wide>(product, LaneTraits<Wide>::Load(c[l]));
    d[l] = LaneTraits<Wide>::Store(product);
  });
}

template <typename A, typename B>
void DotOfBytes(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  const uint32_t* const a = warp.Lanes<uint32_t>(i.slot(1));
  const uint32_t* const b = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const c = warp.Lanes<uint32_t>(i.slot(3));
  ForLanes(lanes, [=](int l) {
    uint32_t sum = c[l];
    for (int byte = 0; byte < 4; ++byte) {
      sum += static_cast<uint32_t>(static_cast<int>(static_cast<A>(a[l] >> 8 * byte)) * static_cast<int>(static_cast<B>(b[l] >> 8 * byte)));
    }
    d[l] = sum;
  });
}

// One handler per width for what does not depend on the sign.
#define BATON_BY_WIDTH(shape, op)                                       \
  (SizeOf(type) == 2 ? &shape<uint16_t, op<uint16_t>>                   \
   : SizeOf(type) == 4 ? &shape<uint32_t, op<uint32_t>> : &shape<uint64_t, op<uint64_t>>)
#define BATON_BY_TYPE(shape, op)                                                                                    \
  (IsSigned(type) ? (SizeOf(type) == 2 ? &shape<int16_t, op<int16_t>>                                               \
                     : SizeOf(type) == 4 ? &shape<int32_t, op<int32_t>> : &shape<int64_t, op<int64_t>>)             \
                  : BATON_BY_WIDTH(shape, op))

Handler WideHandler(Type type, bool add) {
  switch (type) {
    case Type::kU16: return add ? &MulWide<uint16_t, uint32_t, true> : &MulWide<uint16_t, uint32_t, false>;
    case Type::kS16: return add ? &MulWide<int16_t, int32_t, true> : &MulWide<int16_t, int32_t, false>;
    case Type::kU32: return add ? &MulWide<uint32_t, uint64_t, true> : &MulWide<uint32_t, uint64_t, false>;
    case Type::kS32: return add ? &MulWide<int32_t, int64_t, true> : &MulWide<int32_t, int64_t, false>;
    default: return nullptr;
  }
}

bool DecodeDot(Opcode op, Instruction* i, OperandList* operands) {
  const Type a = op.TakeType(), b = op.TakeType();
  i->type = Type::kS32;
  if ((a != Type::kU32 && a != Type::kS32) || (b != Type::kU32 && b != Type::kS32)) return false;
  if (IsSigned(a)) i->handler = IsSigned(b) ? &DotOfBytes<int8_t, int8_t> : &DotOfBytes<int8_t, uint8_t>;
  else i->handler = IsSigned(b) ? &DotOfBytes<uint8_t, int8_t> : &DotOfBytes<uint8_t, uint8_t>;
  *operands = "d4 s4 s4 s4";
  return op.Done();
}

}  // namespace

bool DecodeArithmetic(Opcode op, Instruction* i, OperandList* operands) {
  if (op.Is({"dp4a"})) return DecodeDot(op, i, operands);
  if (!op.Is({"add", "sub", "mul", "mad", "div", "rem", "min", "max", "abs", "neg"})) return false;
  const int part = op.TakeOneOf({"lo", "hi", "wide"});
  const bool saturate = op.Take("sat");
  const Type type = op.TakeType();
  if (!IsInteger(type) || SizeOf(type) == 1 || !op.Done()) return false;
  i->type = type;
  const std::string n = SizeOf(type) == 8 ? "8" : "4";
  *operands = "d" + n + " s" + n + " s" + n;
  if (saturate) {
    if (type != Type::kS32 || !op.Is({"add", "sub"})) return false;
    i->handler = op.Is({"add"}) ? &Binary<int32_t, AddSaturated<int32_t>> : &Binary<int32_t, SubSaturated<int32_t>>;
  } else if (op.Is({"mul", "mad"})) {
    const bool add = op.Is({"mad"});
    if (add) *operands += " s" + n;
    if (part == 2) {
      const std::string wide = SizeOf(type) == 4 ? "8" : "4";
      *operands = "d" + wide + " s" + n + " s" + n + (add ? " s" + wide : "");
      i->handler = WideHandler(type, add);
    } else if (part == 1) {
      i->handler = add ? BATON_BY_TYPE(Ternary, MadHigh) : BATON_BY_TYPE(Binary, MulHigh);
    } else if (part == 0) {
      i->handler = add ? BATON_BY_WIDTH(Ternary, MadLow) : BATON_BY_WIDTH(Binary, MulLow);
    }
    return i->handler != nullptr;
  } else if (op.Is({"add"})) {
    i->handler = BATON_BY_WIDTH(Binary, Add);
  } else if (op.Is({"sub"})) {
    i->handler = BATON_BY_WIDTH(Binary, Sub);
  } else if (op.Is({"div"})) {
    i->handler = BATON_BY_TYPE(Binary, Div);
  } else if (op.Is({"rem"})) {
    i->handler = BATON_BY_TYPE(Binary, Rem);
  } else if (op.Is({"min"})) {
    i->handler = BATON_BY_TYPE(Binary, Min);
  } else if (op.Is({"max"})) {
    i->handler = BATON_BY_TYPE(Binary, Max);
  } else {
    *operands = "d" + n + " s" + n;
    if (op.Is({"abs"})) i->handler = BATON_BY_TYPE(Unary, Abs);
    else i->handler = BATON_BY_WIDTH(Unary, Neg);
  }
  return part < 0;
}

}  // namespace baton::ptx
