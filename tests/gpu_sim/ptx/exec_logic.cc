// SPDX-License-Identifier: Apache-2.0
// Comparisons, selections, logic and moves: setp, selp, and, or, xor, not, mov.
#include <cmath>
#include <cstring>

#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

template <typename T>
bool IsUnordered(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(a) || std::isnan(b);
  else return false;
}

// One loop per relation: the lanes' results as a mask.
template <typename T, typename F>
uint32_t CompareLanes(const SlotOf<T>* a, const SlotOf<T>* b, const F& relation) {
  uint32_t mask = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    mask |= static_cast<uint32_t>(relation(LaneTraits<T>::Load(a[lane]), LaneTraits<T>::Load(b[lane]))) << lane;
  }
  return mask;
}

template <typename T>
uint32_t Relation(Compare compare, const SlotOf<T>* a, const SlotOf<T>* b) {
  using V = ValueOf<T>;
  const auto unordered = [&] { return CompareLanes<T>(a, b, [](V x, V y) { return IsUnordered<V>(x, y); }); };
  switch (compare) {
    case Compare::kEq: return CompareLanes<T>(a, b, [](V x, V y) { return x == y; });
    case Compare::kLt: return CompareLanes<T>(a, b, [](V x, V y) { return x < y; });
    case Compare::kLe: return CompareLanes<T>(a, b, [](V x, V y) { return x <= y; });
    case Compare::kGt: return CompareLanes<T>(a, b, [](V x, V y) { return x > y; });
    case Compare::kGe: return CompareLanes<T>(a, b, [](V x, V y) { return x >= y; });
    case Compare::kNe: return CompareLanes<T>(a, b, [](V x, V y) { return x != y && !IsUnordered<V>(x, y); });
    case Compare::kEqu: return Relation<T>(Compare::kEq, a, b) | unordered();
    case Compare::kNeu: return Relation<T>(Compare::kNe, a, b) | unordered();
    case Compare::kLtu: return Relation<T>(Compare::kLt, a, b) | unordered();
    case Compare::kLeu: return Relation<T>(Compare::kLe, a, b) | unordered();
    case Compare::kGtu: return Relation<T>(Compare::kGt, a, b) | unordered();
    case Compare::kGeu: return Relation<T>(Compare::kGe, a, b) | unordered();
    case Compare::kNum: return ~unordered();
    case Compare::kNan: return unordered();
  }
  return 0;
}

// p|q = relation(a, b) [and|or|xor r]; q is made from the relation's negation.
template <typename T>
void SetPredicate(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t truth = Relation<T>(i.compare, warp.Lanes<SlotOf<T>>(i.slot(2)), warp.Lanes<SlotOf<T>>(i.slot(3)));
  uint32_t yes = truth, no = ~truth;
  if (i.combine != BoolOp::kNone) {
    const uint32_t value = warp.Predicate(i.slot(4));
    const uint32_t other = i.combine_negated ? ~value : value;
    const auto combined = [&](uint32_t x) {
      return i.combine == BoolOp::kAnd ? x & other : i.combine == BoolOp::kOr ? x | other : x ^ other;
    };
    yes = combined(yes);
    no = combined(no);
  }
  uint32_t& p = warp.Predicate(i.slot(0));
  p = (p & ~lanes) | (yes & lanes);
  uint32_t& q = warp.Predicate(i.slot(1));
  q = (q & ~lanes) | (no & lanes);
}

template <typename Slot>
void Select(Warp& warp, const Instruction& i, uint32_t lanes) {
  Slot* const d = warp.Lanes<Slot>(i.slot(0));
  const Slot* const a = warp.Lanes<Slot>(i.slot(1));
  const Slot* const b = warp.Lanes<Slot>(i.slot(2));
  const uint32_t value = warp.Predicate(i.slot(3));
  const uint32_t predicate = i.combine_negated ? ~value : value;
  ForLanes(lanes, [=](int l) { d[l] = (predicate >> l & 1) != 0 ? a[l] : b[l]; });
}

template <typename T> T And(T a, T b) { return a & b; }
template <typename T> T Or(T a, T b) { return a | b; }
template <typename T> T Xor(T a, T b) { return a ^ b; }
template <typename T> T Not(T a) { return static_cast<T>(~a); }
template <typename T> T Same(T a) { return a; }

// mode: 0 and, 1 or, 2 xor, 3 not, 4 move.
void PredicateLogic(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t a = warp.Predicate(i.slot(1));
  const uint32_t b = i.num_operands > 2 ? warp.Predicate(i.slot(2)) : 0;
  const uint32_t result = i.mode == 0 ? a & b : i.mode == 1 ? a | b : i.mode == 2 ? a ^ b : i.mode == 3 ? ~a : a;
  uint32_t& d = warp.Predicate(i.slot(0));
  d = (d & ~lanes) | (result & lanes);
}

// mov.bN d, {a, b, ...} and mov.bN {a, b, ...}, s; the elements lie in `width` equal parts, lowest first.
template <typename Whole>
void Pack(Warp& warp, const Instruction& i, uint32_t lanes) {
  Whole* const d = warp.Lanes<Whole>(i.slot(0));
  const int bits = static_cast<int>(8 * sizeof(Whole)) / i.width;
  ForLanes(lanes, [&](int l) {
    Whole whole = 0;
    for (int part = 0; part < i.width; ++part) {
      const Whole value = warp.Lanes<uint32_t>(i.slot(1, part))[l] & (bits == 32 ? 0xffffffffu : (1u << bits) - 1);
      whole |= value << (part * bits);
    }
    d[l] = whole;
  });
}
template <typename Whole>
void Unpack(Warp& warp, const Instruction& i, uint32_t lanes) {
  const Whole* const s = warp.Lanes<Whole>(i.slot(1));
  const int bits = static_cast<int>(8 * sizeof(Whole)) / i.width;
  ForLanes(lanes, [&](int l) {
    const Whole whole = s[l];  // A part may be the source itself.
    for (int part = 0; part < i.width; ++part) {
      const auto value = static_cast<uint32_t>(whole >> (part * bits));
      warp.Lanes<uint32_t>(i.slot(0, part))[l] = bits == 32 ? value : value & ((1u << bits) - 1);
    }
  });
}

bool DecodeMove(Opcode op, Instruction* i, OperandList* operands) {
  const Type type = op.TakeType();
  if (type == Type::kNone || !op.Done()) return false;
  i->type = type;
  if (type == Type::kPred) {
    i->handler = &PredicateLogic;
    i->mode = 4;
    *operands = "dp sp";
    return true;
  }
  if (SizeOf(type) == 1) return false;
  const bool wide = SizeOf(type) == 8;
  const std::string n = wide ? "8" : "4";
  const int to = op.Elements(0), from = op.Elements(1);
  if (to == 1 && from == 1) {
    i->handler = wide ? &Unary<uint64_t, Same<uint64_t>> : &Unary<uint32_t, Same<uint32_t>>;
    *operands = "d" + n + " s" + n;
    return true;
  }
  const int parts = std::max(to, from);
  if (std::min(to, from) != 1 || (parts != 2 && parts != 4) || SizeOf(type) < 4) return false;
  i->width = static_cast<uint8_t>(parts);
  const std::string vector = "4*" + std::to_string(parts);
  if (from > 1) {
    i->handler = wide ? &Pack<uint64_t> : &Pack<uint32_t>;
    *operands = "d" + n + " s" + vector;
  } else {
    i->handler = wide ? &Unpack<uint64_t> : &Unpack<uint32_t>;
    *operands = "d" + vector + " s" + n;
  }
  return true;
}

Handler SetPredicateHandler(Type type) {
  switch (type) {
    case Type::kB16: case Type::kU16: return &SetPredicate<uint16_t>;
    case Type::kS16: return &SetPredicate<int16_t>;
    case Type::kB32: case Type::kU32: return &SetPredicate<uint32_t>;
    case Type::kS32: return &SetPredicate<int32_t>;
    case Type::kB64: case Type::kU64: return &SetPredicate<uint64_t>;
    case Type::kS64: return &SetPredicate<int64_t>;
    case Type::kF16: return &SetPredicate<F16>;
    case Type::kBf16: return &SetPredicate<BF16>;
    case Type::kF32: return &SetPredicate<float>;
    case Type::kF64: return &SetPredicate<double>;
    default: return nullptr;
  }
}

bool DecodeSetPredicate(Opcode op, Instruction* i, OperandList* operands) {
  int relation = op.TakeOneOf({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  const int same = op.TakeOneOf({"lo", "ls", "hi", "hs"});  // Unsigned names of lt, le, gt, ge.
  if (relation < 0 && same >= 0) relation = static_cast<int>(Compare::kLt) + same;
  const int combine = op.TakeOneOf({"and", "or", "xor"});
  const bool flush = op.Take("ftz");  // Compares subnormals with zero: not interpreted.
  const Type type = op.TakeType();
  i->handler = SetPredicateHandler(type);
  if (relation < 0 || flush || i->handler == nullptr) return false;
  i->type = type;
  i->compare = static_cast<Compare>(relation);
  i->combine = static_cast<BoolOp>(combine + 1);
  const std::string n = SizeOf(type) == 8 ? "8" : "4";
  *operands = "dp|dp s" + n + " s" + n + (combine >= 0 ? " sp" : "");
  return op.Done();
}

}  // namespace

bool DecodeLogic(Opcode op, Instruction* i, OperandList* operands) {
  if (op.Is({"mov"})) return DecodeMove(op, i, operands);
  if (op.Is({"setp"})) return DecodeSetPredicate(op, i, operands);
  if (!op.Is({"selp", "and", "or", "xor", "not"})) return false;
  const Type type = op.TakeType();
  if (type == Type::kNone || !op.Done()) return false;
  i->type = type;
  const bool wide = SizeOf(type) == 8;
  const std::string n = wide ? "8" : "4";
  if (op.Is({"selp"})) {
    if (SizeOf(type) == 1) return false;
    i->handler = wide ? &Select<uint64_t> : &Select<uint32_t>;
    *operands = "d" + n + " s" + n + " s" + n + " sp";
    return true;
  }
  if (type == Type::kPred) {
    i->handler = &PredicateLogic;
    i->mode = op.Is({"and"}) ? 0 : op.Is({"or"}) ? 1 : op.Is({"xor"}) ? 2 : 3;
    *operands = op.Is({"not"}) ? "dp sp" : "dp sp sp";
    return true;
  }
  if (SizeOf(type) == 1) return false;
  if (op.Is({"not"})) {
    i->handler = wide ? &Unary<uint64_t, Not<uint64_t>> : SizeOf(type) == 2 ? &Unary<uint16_t, Not<uint16_t>> : &Unary<uint32_t, Not<uint32_t>>;
    *operands = "d" + n + " s" + n;
    return true;
  }
  if (op.Is({"and"})) i->handler = wide ? &Binary<uint64_t, And<uint64_t>> : &Binary<uint32_t, And<uint32_t>>;
  else if (op.Is({"or"})) i->handler = wide ? &Binary<uint64_t, Or<uint64_t>> : &Binary<uint32_t, Or<uint32_t>>;
  else i->handler = wide ? &Binary<uint64_t, Xor<uint64_t>> : &Binary<uint32_t, Xor<uint32_t>>;
  *operands = "d" + n + " s" + n + " s" + n;
  return true;
}

}  // namespace baton::ptx
