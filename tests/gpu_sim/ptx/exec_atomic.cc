// SPDX-License-Identifier: Apache-2.0
// atom and red on global and shared memory. Blocks run one after another and lanes in order: each is a plain read and write.
#include <algorithm>
#include <cstring>

#include "tests/gpu_sim/ptx/access.h"
#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

enum Operation : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas, kInc, kDec };

template <typename T>
T Apply(uint8_t operation, T old, T b, T c) {
  if constexpr (std::is_floating_point_v<T>) {
    return operation == kAdd ? old + b : b;
  } else {
    using U = std::make_unsigned_t<T>;
    switch (operation) {
      case kAdd: return static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
      case kMin: return std::min(old, b);
      case kMax: return std::max(old, b);
      case kAnd: return old & b;
      case kOr: return old | b;
      case kXor: return old ^ b;
      case kCas: return old == b ? c : old;
      case kInc: return static_cast<U>(old) >= static_cast<U>(b) ? T{0} : static_cast<T>(old + 1);
      case kDec: return old == 0 || static_cast<U>(old) > static_cast<U>(b) ? b : static_cast<T>(old - 1);
      default: return b;
    }
  }
}

template <typename T, bool kReturns>
void Atomic(Warp& warp, const Instruction& i, uint32_t lanes) {
  const int first = kReturns ? 1 : 0;
  uint64_t addresses[kWarpSize];
  Addresses(warp, i, first, i.address_bytes, i.address_offset, addresses);
  const bool compares = i.mode == kCas;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    uint8_t* const at = Access(warp, i, i.space, lane, addresses[lane], sizeof(T), AccessKind::kAtomic);
    if (at == nullptr) return;
    T old;
    std::memcpy(&old, at, sizeof(T));
    const T b = LaneTraits<T>::Load(warp.Lanes<SlotOf<T>>(i.slot(first + 1))[lane]);
    const T c = compares ? LaneTraits<T>::Load(warp.Lanes<SlotOf<T>>(i.slot(first + 2))[lane]) : T{};
    const T result = Apply<T>(i.mode, old, b, c);
    std::memcpy(at, &result, sizeof(T));
    if constexpr (kReturns) warp.Lanes<SlotOf<T>>(i.slot(0))[lane] = LaneTraits<T>::Store(old);
  }
  CountTraffic(warp, i.space, lanes, addresses, sizeof(T));
}

template <bool kReturns>
Handler HandlerFor(Type type) {
  switch (type) {
    case Type::kB32: case Type::kU32: return &Atomic<uint32_t, kReturns>;
    case Type::kS32: return &Atomic<int32_t, kReturns>;
    case Type::kB64: case Type::kU64: return &Atomic<uint64_t, kReturns>;
    case Type::kS64: return &Atomic<int64_t, kReturns>;
    case Type::kF32: return &Atomic<float, kReturns>;
    case Type::kF64: return &Atomic<double, kReturns>;
    default: return nullptr;
  }
}

}  // namespace

bool DecodeAtomic(Opcode op, Instruction* i, OperandList* operands) {
  if (!op.Is({"atom", "red"})) return false;
  const bool returns = op.Is({"atom"});
  op.TakeOneOf({"relaxed", "acquire", "release", "acq_rel"});
  op.TakeOneOf({"cta", "gpu", "sys"});
  i->space = static_cast<Space>(op.TakeOneOf({"global", "shared"}) + 1);
  const int operation = op.TakeOneOf({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  i->type = op.TakeType();
  i->handler = returns ? HandlerFor<true>(i->type) : HandlerFor<false>(i->type);
  if (operation < 0 || i->handler == nullptr || !op.Done()) return false;
  if (IsFloat(i->type) && operation != kAdd) return false;
  i->mode = static_cast<uint8_t>(operation);
  const std::string n = SizeOf(i->type) == 8 ? "8" : "4";
  *operands = std::string(returns ? "d" + n + " " : "") + "a s" + n + (operation == kCas ? " s" + n : "");
  return true;
}

}  // namespace baton::ptx
