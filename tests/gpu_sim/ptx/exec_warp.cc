// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together: shfl, vote, match, redux, bar.warp.sync, activemask. The scheduler has brought all lanes
// of the mask here before a handler runs. Exchanging values orders no memory: only bar.warp.sync does.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

enum ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

// d|p, a, b, c, mask: PTX ISA, "shfl.sync".
void Shuffle(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t* const a = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const b = warp.Lanes<uint32_t>(i.slot(3));
  const uint32_t* const c = warp.Lanes<uint32_t>(i.slot(4));
  uint32_t result[kWarpSize], inside = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const int amount = static_cast<int>(b[lane] & 31), segment = static_cast<int>(c[lane] >> 8 & 31), clamp = static_cast<int>(c[lane] & 31);
    const int low = lane & segment, high = low | (clamp & ~segment);
    int source;
    bool valid;
    switch (i.mode) {
      case kUp: source = lane - amount; valid = source >= high; break;
      case kDown: source = lane + amount; valid = source <= high; break;
      case kButterfly: source = lane ^ amount; valid = source <= high; break;
      default: source = low | (amount & ~segment); valid = source <= high; break;
    }
    if (!valid) source = lane;
    else inside |= 1u << lane;
    if ((lanes >> source & 1) == 0) {
      warp.Report(FindingKind::kWarpSync, i, lane, absl::StrCat("reads lane ", source, ", which is not part of this shuffle"));
    }
    result[lane] = a[source];
  }
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  ForLanes(lanes, [&](int l) { d[l] = result[l]; });
  uint32_t& p = warp.Predicate(i.slot(1));
  p = (p & ~lanes) | (inside & lanes);
}

enum VoteMode : uint8_t { kAll, kAny, kUni, kBallot };

void Vote(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t value = warp.Predicate(i.slot(1));
  const uint32_t votes = (i.combine_negated ? ~value : value) & lanes;
  if (i.mode == kBallot) {
    uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
    ForLanes(lanes, [=](int l) { d[l] = votes; });
    return;
  }
  const bool result = i.mode == kAll ? votes == lanes : i.mode == kAny ? votes != 0 : votes == lanes || votes == 0;
  uint32_t& p = warp.Predicate(i.slot(0));
  p = (p & ~lanes) | (result ? lanes : 0);
}

template <typename Slot>
void MatchAny(Warp& warp, const Instruction& i, uint32_t lanes) {
  const Slot* const a = warp.Lanes<Slot>(i.slot(1));
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  uint32_t result[kWarpSize] = {};
  ForLanes(lanes, [&](int l) {
    ForLanes(lanes, [&](int other) { result[l] |= static_cast<uint32_t>(a[l] == a[other]) << other; });
  });
  ForLanes(lanes, [&](int l) { d[l] = result[l]; });
}

enum ReduceMode : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <typename T>
void Reduce(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t* const a = warp.Lanes<uint32_t>(i.slot(1));
  T result = static_cast<T>(a[std::countr_zero(lanes)]);
  for (uint32_t rest = lanes & (lanes - 1); rest != 0; rest &= rest - 1) {
    const T value = static_cast<T>(a[std::countr_zero(rest)]);
    switch (i.mode) {
      case kAdd: result = static_cast<T>(static_cast<uint32_t>(result) + static_cast<uint32_t>(value)); break;
      case kMin: result = std::min(result, value); break;
      case kMax: result = std::max(result, value); break;
      case kAnd: result &= value; break;
      case kOr: result |= value; break;
      default: result ^= value; break;
    }
  }
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  ForLanes(lanes, [=](int l) { d[l] = static_cast<uint32_t>(result); });
}

void SyncWarp(Warp& warp, const Instruction& i, uint32_t lanes) { warp.OrderLanes(lanes); }

void ActiveMask(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t running = warp.running();
  uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0));
  ForLanes(lanes, [=](int l) { d[l] = running; });
}

bool DecodeCollective(Opcode op, Instruction* i, OperandList* operands) {
  i->flow = Flow::kCollective;
  if (op.Is({"bar"})) {
    i->handler = &SyncWarp;
    *operands = "s4";
    return op.Take("warp") && op.Take("sync") && op.Done();
  }
  if (!op.Take("sync")) return false;
  if (op.Is({"shfl"})) {
    const int mode = op.TakeOneOf({"up", "down", "bfly", "idx"});
    i->mode = static_cast<uint8_t>(mode);
    i->handler = &Shuffle;
    *operands = "d4|dp s4 s4 s4 s4";
    return mode >= 0 && op.TakeType() == Type::kB32 && op.Done();
  }
  if (op.Is({"vote"})) {
    const int mode = op.TakeOneOf({"all", "any", "uni", "ballot"});
    i->mode = static_cast<uint8_t>(mode);
    i->handler = &Vote;
    *operands = mode == kBallot ? "d4 sp s4" : "dp sp s4";
    return mode >= 0 && op.TakeType() == (mode == kBallot ? Type::kB32 : Type::kPred) && op.Done();
  }
  if (op.Is({"match"})) {
    if (!op.Take("any")) return false;
    const Type type = op.TakeType();
    const bool wide = type == Type::kB64;
    i->handler = wide ? &MatchAny<uint64_t> : &MatchAny<uint32_t>;
    *operands = wide ? "d4 s8 s4" : "d4 s4 s4";
    return (wide || type == Type::kB32) && op.Done();
  }
  if (op.Is({"redux"})) {
    const int mode = op.TakeOneOf({"add", "min", "max", "and", "or", "xor"});
    const Type type = op.TakeType();
    i->mode = static_cast<uint8_t>(mode);
    i->handler = type == Type::kS32 ? &Reduce<int32_t> : &Reduce<uint32_t>;
    *operands = "d4 s4 s4";
    return mode >= 0 && SizeOf(type) == 4 && IsInteger(type) && op.Done();
  }
  return false;
}

}  // namespace

bool DecodeWarp(Opcode op, Instruction* i, OperandList* operands) {
  if (op.Is({"activemask"})) {
    i->handler = &ActiveMask;
    *operands = "d4";
    return op.TakeType() == Type::kB32 && op.Done();
  }
  return DecodeCollective(op, i, operands);
}

}  // namespace baton::ptx
