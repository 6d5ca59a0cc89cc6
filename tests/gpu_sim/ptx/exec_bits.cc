// SPDX-License-Identifier: Apache-2.0
// Bits: shl, shr, shf, bfe, bfi, brev, clz, popc, bfind, prmt, lop3.
#include <bit>

#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

// The second operand is 32 bits wide whatever the type; amounts beyond the width shift everything out.
template <typename T, bool kLeft>
void Shift(Warp& warp, const Instruction& i, uint32_t lanes) {
  SlotOf<T>* const d = warp.Lanes<SlotOf<T>>(i.slot(0));
  const SlotOf<T>* const a = warp.Lanes<SlotOf<T>>(i.slot(1));
  const uint32_t* const b = warp.Lanes<uint32_t>(i.slot(2));
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [=](int l) {
    const T value = LaneTraits<T>::Load(a[l]);
    T result;
    if (b[l] < kBits) result = kLeft ? static_cast<T>(value << b[l]) : static_cast<T>(value >> b[l]);
    else result = !kLeft && std::is_signed_v<T> && value < 0 ? static_cast<T>(-1) : T{0};
    d[l] = LaneTraits<T>::Store(result);
  });
}

// mode 1: left; saturate: clamp instead of wrap.
void FunnelShift(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  const uint32_t* const low = warp.Lanes<uint32_t>(i.slot(1));
  const uint32_t* const high = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const amount = warp.Lanes<uint32_t>(i.slot(3));
  const bool left = i.mode == 1, clamp = i.saturate;
  ForLanes(lanes, [=](int l) {
    const uint32_t n = clamp ? std::min(amount[l], 32u) : amount[l] & 31;
    const uint64_t both = static_cast<uint64_t>(high[l]) << 32 | low[l];
    d[l] = static_cast<uint32_t>(left ? both >> (32 - n) : both >> n);
  });
}

template <typename T>
void ExtractField(Warp& warp, const Instruction& i, uint32_t lanes) {
  SlotOf<T>* const d = warp.Lanes<SlotOf<T>>(i.slot(0));
  const SlotOf<T>* const a = warp.Lanes<SlotOf<T>>(i.slot(1));
  const uint32_t* const position = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const length = warp.Lanes<uint32_t>(i.slot(3));
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [=](int l) {
    const uint32_t p = position[l] & 0xff, n = length[l] & 0xff;
    const auto bits = static_cast<std::make_unsigned_t<T>>(a[l]);
    using U = std::make_unsigned_t<T>;
    const uint32_t sign_at = std::min(p + n - 1, kBits - 1);
    const bool negative = std::is_signed_v<T> && n != 0 && (bits >> sign_at & 1) != 0;
    U result = p < kBits ? static_cast<U>(bits >> p) : U{0};
    const uint32_t kept = p < kBits ? std::min(n, kBits - p) : 0;
    const U mask = kept >= kBits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << kept) - 1);
    result &= mask;
    if (negative) result |= static_cast<U>(~mask);
    d[l] = result;
  });
}

template <typename T>
void InsertField(Warp& warp, const Instruction& i, uint32_t lanes) {
  T* const d = warp.Lanes<T>(i.slot(0));
  const T* const a = warp.Lanes<T>(i.slot(1));
  const T* const b = warp.Lanes<T>(i.slot(2));
  const uint32_t* const position = warp.Lanes<uint32_t>(i.slot(3));
  const uint32_t* const length = warp.Lanes<uint32_t>(i.slot(4));
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [=](int l) {
    const uint32_t p = position[l] & 0xff, n = std::min(length[l] & 0xff, kBits);
    const T ones = n == kBits ? ~T{0} : (T{1} << n) - 1;
    const T mask = p < kBits ? ones << p : T{0};
    d[l] = (b[l] & ~mask) | (p < kBits ? a[l] << p & mask : T{0});
  });
}

void Permute(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  const uint32_t* const a = warp.Lanes<uint32_t>(i.slot(1));
  const uint32_t* const b = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const c = warp.Lanes<uint32_t>(i.slot(3));
  ForLanes(lanes, [=](int l) {
    const uint64_t bytes = static_cast<uint64_t>(b[l]) << 32 | a[l];
    uint32_t result = 0;
    for (int n = 0; n < 4; ++n) {
      const uint32_t selector = c[l] >> 4 * n & 0xf;
      uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7)) & 0xff;
      if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // Its sign, eight times.
      result |= byte << 8 * n;
    }
    d[l] = result;
  });
}

void Logic3(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  const uint32_t* const a = warp.Lanes<uint32_t>(i.slot(1));
  const uint32_t* const b = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const c = warp.Lanes<uint32_t>(i.slot(3));
  const auto table = static_cast<uint32_t>(i.immediate);
  ForLanes(lanes, [=](int l) {
    uint32_t result = 0;
    for (uint32_t row = 0; row < 8; ++row) {
      if ((table >> row & 1) == 0) continue;
      result |= ((row & 4) != 0 ? a[l] : ~a[l]) & ((row & 2) != 0 ? b[l] : ~b[l]) & ((row & 1) != 0 ? c[l] : ~c[l]);
    }
    d[l] = result;
  });
}

// Results are 32 bits wide whatever the operand.
template <typename T, auto Op>
void Count(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  const T* const a = warp.Lanes<T>(i.slot(1));
  ForLanes(lanes, [=](int l) { d[l] = static_cast<uint32_t>(Op(a[l])); });
}
template <typename T> int LeadingZeros(T a) { return std::countl_zero(a); }
template <typename T> int Ones(T a) { return std::popcount(a); }
template <typename T> int HighestOne(T a) { return a == 0 ? -1 : static_cast<int>(8 * sizeof(T)) - 1 - std::countl_zero(a); }
template <typename T> int HighestSignificant(T a) {
  return HighestOne(static_cast<std::make_signed_t<T>>(a) < 0 ? static_cast<T>(~a) : a);
}
template <typename T> T Reverse(T a) {
  T result = 0;
  for (size_t bit = 0; bit < 8 * sizeof(T); ++bit) result |= (a >> bit & 1) << (8 * sizeof(T) - 1 - bit);
  return result;
}

template <bool kLeft>
Handler ShiftHandler(Type type) {
  const bool arithmetic = !kLeft && IsSigned(type);
  switch (SizeOf(type)) {
    case 2: return arithmetic ? &Shift<int16_t, kLeft> : &Shift<uint16_t, kLeft>;
    case 4: return arithmetic ? &Shift<int32_t, kLeft> : &Shift<uint32_t, kLeft>;
    case 8: return arithmetic ? &Shift<int64_t, kLeft> : &Shift<uint64_t, kLeft>;
    default: return nullptr;
  }
}

}  // namespace

bool DecodeBits(Opcode op, Instruction* i, OperandList* operands) {
  if (!op.Is({"shl", "shr", "shf", "bfe", "bfi", "brev", "clz", "popc", "bfind", "prmt", "lop3"})) return false;
  const int side = op.Is({"shf"}) ? op.TakeOneOf({"r", "l"}) : 0;
  i->saturate = op.Is({"shf"}) && op.Take("clamp");
  if (op.Is({"shf"})) op.Take("wrap");
  const Type type = op.TakeType();
  if (!IsInteger(type) || side < 0 || !op.Done()) return false;
  i->type = type;
  const bool wide = SizeOf(type) == 8;
  const std::string n = wide ? "8" : "4";
  if (op.Is({"shl", "shr"})) {
    i->handler = op.Is({"shl"}) ? ShiftHandler<true>(type) : ShiftHandler<false>(type);
    *operands = "d" + n + " s" + n + " s4";
    return i->handler != nullptr;
  }
  if (SizeOf(type) < 4) return false;
  if (op.Is({"shf", "prmt", "lop3"})) {
    if (wide) return false;
    i->mode = static_cast<uint8_t>(side);
    i->handler = op.Is({"shf"}) ? &FunnelShift : op.Is({"prmt"}) ? &Permute : &Logic3;
    *operands = op.Is({"lop3"}) ? "d4 s4 s4 s4 i" : "d4 s4 s4 s4";
  } else if (op.Is({"bfe"})) {
    i->handler = IsSigned(type) ? (wide ? &ExtractField<int64_t> : &ExtractField<int32_t>)
                                : (wide ? &ExtractField<uint64_t> : &ExtractField<uint32_t>);
    *operands = "d" + n + " s" + n + " s4 s4";
  } else if (op.Is({"bfi"})) {
    i->handler = wide ? &InsertField<uint64_t> : &InsertField<uint32_t>;
    *operands = "d" + n + " s" + n + " s" + n + " s4 s4";
  } else if (op.Is({"brev"})) {
    i->handler = wide ? &Unary<uint64_t, Reverse<uint64_t>> : &Unary<uint32_t, Reverse<uint32_t>>;
    *operands = "d" + n + " s" + n;
  } else {
    if (op.Is({"clz"})) i->handler = wide ? &Count<uint64_t, LeadingZeros<uint64_t>> : &Count<uint32_t, LeadingZeros<uint32_t>>;
    else if (op.Is({"popc"})) i->handler = wide ? &Count<uint64_t, Ones<uint64_t>> : &Count<uint32_t, Ones<uint32_t>>;
    else if (IsSigned(type)) i->handler = wide ? &Count<uint64_t, HighestSignificant<uint64_t>> : &Count<uint32_t, HighestSignificant<uint32_t>>;
    else i->handler = wide ? &Count<uint64_t, HighestOne<uint64_t>> : &Count<uint32_t, HighestOne<uint32_t>>;
    *operands = "d4 s" + n;
  }
  return true;
}

}  // namespace baton::ptx
