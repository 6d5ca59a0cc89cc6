// SPDX-License-Identifier: Apache-2.0
// ld, st, cvta, membar, fence, prefetch, trap.
#include <cstring>

#include "tests/gpu_sim/ptx/access.h"
#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

// i.mode 1: volatile or with memory order, which races with nothing of its kind.
AccessKind KindOf(const Instruction& i, AccessKind plain, AccessKind ordered) { return i.mode == 1 ? ordered : plain; }

uint64_t Extend(Type type, uint64_t bits) {
  const int shift = 64 - 8 * SizeOf(type);
  return IsSigned(type) ? static_cast<uint64_t>(static_cast<int64_t>(bits << shift) >> shift) : bits;
}

void Load(Warp& warp, const Instruction& i, uint32_t lanes) {
  const int size = SizeOf(i.type), total = size * i.width;
  const bool wide = size == 8 || i.wide_destination;
  uint64_t addresses[kWarpSize];
  Addresses(warp, i, 1, i.address_bytes, i.address_offset, addresses);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const AccessKind kind = KindOf(i, AccessKind::kRead, AccessKind::kAtomicRead);
    const uint8_t* const from = Access(warp, i, i.space, lane, addresses[lane], total, kind);
    if (from == nullptr) return;
    for (int element = 0; element < i.width; ++element) {
      uint64_t bits = 0;
      std::memcpy(&bits, from + element * size, static_cast<size_t>(size));
      bits = Extend(i.type, bits);
      if (wide) warp.Lanes<uint64_t>(i.slot(0, element))[lane] = bits;
      else warp.Lanes<uint32_t>(i.slot(0, element))[lane] = static_cast<uint32_t>(bits);
    }
  }
  CountTraffic(warp, i.space, lanes, addresses, total);
}

void Store(Warp& warp, const Instruction& i, uint32_t lanes) {
  const int size = SizeOf(i.type), total = size * i.width;
  const bool wide = size == 8 || i.wide_source;
  uint64_t addresses[kWarpSize];
  Addresses(warp, i, 0, i.address_bytes, i.address_offset, addresses);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const AccessKind kind = KindOf(i, AccessKind::kWrite, AccessKind::kAtomicWrite);
    uint8_t* const to = Access(warp, i, i.space, lane, addresses[lane], total, kind);
    if (to == nullptr) return;
    for (int element = 0; element < i.width; ++element) {
      const uint64_t bits = wide ? warp.Lanes<uint64_t>(i.slot(1, element))[lane] : warp.Lanes<uint32_t>(i.slot(1, element))[lane];
      std::memcpy(to + element * size, &bits, static_cast<size_t>(size));
    }
  }
  CountTraffic(warp, i.space, lanes, addresses, total);
}

uint64_t WindowOf(Space space) {
  return space == Space::kShared ? kSharedWindow : space == Space::kLocal ? kLocalWindow : 0;
}
void ToGeneric(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* const d = warp.Lanes<uint64_t>(i.slot(0));
  const uint64_t* const a = warp.Lanes<uint64_t>(i.slot(1));
  const uint64_t window = WindowOf(i.space);
  ForLanes(lanes, [=](int l) { d[l] = a[l] + window; });
}
void FromGeneric(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* const d = warp.Lanes<uint64_t>(i.slot(0));
  const uint64_t* const a = warp.Lanes<uint64_t>(i.slot(1));
  const uint64_t window = WindowOf(i.space);
  ForLanes(lanes, [=](int l) { d[l] = a[l] - window; });
}

void Nothing(Warp&, const Instruction&, uint32_t) {}

void Trap(Warp& warp, const Instruction& i, uint32_t lanes) {
  warp.Report(FindingKind::kTrap, i, std::countr_zero(lanes), "the kernel says so");
}

int TakeSpace(Opcode* op) { return op->TakeOneOf({"global", "shared", "local", "param", "const"}); }

bool DecodeAccess(Opcode op, Instruction* i, OperandList* operands) {
  const bool load = op.Is({"ld"});
  const int space = TakeSpace(&op);
  i->space = static_cast<Space>(space + 1);
  op.Take("cta");  // .shared::cta is one word with "::".
  op.Take("nc");
  if (op.TakeOneOf({"volatile", "relaxed", "acquire", "release"}) >= 0) i->mode = 1;
  op.TakeOneOf({"cta", "gpu", "sys", "cluster"});
  op.TakeOneOf({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  op.TakeOneOf({"L1::evict_normal", "L1::evict_first", "L1::evict_last", "L1::evict_unchanged", "L1::no_allocate"});
  op.TakeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  const int vector = op.TakeOneOf({"v2", "v4"});
  i->width = vector < 0 ? 1 : vector == 0 ? 2 : 4;
  i->type = op.TakeType();
  if (!op.Done() || i->type == Type::kNone || i->type == Type::kPred || SizeOf(i->type) * i->width > 16) return false;
  i->handler = load ? &Load : &Store;
  const std::string width = "*" + std::to_string(i->width);
  *operands = load ? "dw" + width + " a" : "a sw" + width;
  return true;
}

}  // namespace

bool DecodeMemory(Opcode op, Instruction* i, OperandList* operands) {
  if (op.Is({"ld", "st"})) return DecodeAccess(op, i, operands);
  if (op.Is({"cvta"})) {
    const bool from = op.Take("to");
    const int space = TakeSpace(&op);
    if (space < 0 || op.TakeType() != Type::kU64 || !op.Done()) return false;
    i->space = static_cast<Space>(space + 1);
    i->handler = from ? &FromGeneric : &ToGeneric;
    *operands = "d8 s8";
    return true;
  }
  if (op.Is({"membar", "fence"})) {  // Blocks run one after another, and every store is seen at once.
    op.TakeOneOf({"sc", "acq_rel"});
    op.TakeOneOf({"cta", "gl", "gpu", "sys"});
    i->handler = &Nothing;
    return op.Done();
  }
  if (op.Is({"trap"})) {
    i->handler = &Trap;
    return op.Done();
  }
  return false;
}

}  // namespace baton::ptx
