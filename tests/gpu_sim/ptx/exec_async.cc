// SPDX-License-Identifier: Apache-2.0
// cp.async: for the race check the destination is written when the copy is issued; its bytes arrive when they are waited for, and
// reading them before that is reading what nobody wrote. A device may do either at any time between: both extremes are held.
#include <algorithm>
#include <cstring>

#include "tests/gpu_sim/ptx/access.h"
#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

// Operands: shared address, global address, size, and perhaps how many bytes are copied; the rest is zeros.
void Issue(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t* const size_slot = warp.Lanes<uint32_t>(i.slot(2));
  const uint32_t* const copied_slot = i.num_operands > 3 ? warp.Lanes<uint32_t>(i.slot(3)) : nullptr;
  uint64_t to[kWarpSize], from[kWarpSize];
  Addresses(warp, i, 0, i.address_bytes, i.address_offset, to);
  Addresses(warp, i, 1, i.mode, i.immediate, from);
  const auto size = static_cast<int>(size_slot[0]);
  uint32_t reading = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    AsyncCopy copy{.lane = lane, .group = kOpenGroup, .destination = static_cast<uint32_t>(to[lane]), .bytes = static_cast<uint32_t>(size), .data = {}};
    if (Access(warp, i, Space::kShared, lane, to[lane], size, AccessKind::kWrite) == nullptr) return;
    std::memset(&warp.launch().shared.written[to[lane]], 0, static_cast<size_t>(size));
    const uint32_t copied = copied_slot == nullptr ? static_cast<uint32_t>(size) : std::min(copied_slot[lane], static_cast<uint32_t>(size));
    if (copied != 0) {
      // Alignment is that of the whole size, whatever is copied of it; only what is copied must be there.
      if (from[lane] % static_cast<uint64_t>(size) != 0) {
        warp.Report(FindingKind::kMisaligned, i, lane, "source of a cp.async");
        return;
      }
      for (uint32_t at = 0; at < copied; at += 4) {
        const uint8_t* const source = Access(warp, i, Space::kGlobal, lane, from[lane] + at, 4, AccessKind::kRead);
        if (source == nullptr) return;
        std::memcpy(copy.data + at, source, std::min<size_t>(4, copied - at));
      }
      reading |= 1u << lane;
    }
    warp.async_copies().push_back(copy);
  }
  CountTraffic(warp, Space::kShared, lanes, to, size);
  if (reading != 0) CountTraffic(warp, Space::kGlobal, reading, from, size);
}

void Commit(Warp& warp, const Instruction& i, uint32_t lanes) {
  for (AsyncCopy& copy : warp.async_copies()) {
    if (copy.group == kOpenGroup && (lanes >> copy.lane & 1) != 0) copy.group = warp.committed_groups(copy.lane);
  }
  for (; lanes != 0; lanes &= lanes - 1) ++warp.committed_groups(std::countr_zero(lanes));
}

// All but the last `immediate` groups of each lane arrive; mode 1: everything, committed or not.
void Wait(Warp& warp, const Instruction& i, uint32_t lanes) {
  SharedMemory& shared = warp.launch().shared;
  std::vector<AsyncCopy>& copies = warp.async_copies();
  const auto arrived = [&](const AsyncCopy& copy) {
    if ((lanes >> copy.lane & 1) == 0) return false;
    if (i.mode != 1) {
      if (copy.group == kOpenGroup) return false;
      const uint32_t committed = warp.committed_groups(copy.lane);
      if (copy.group + static_cast<uint32_t>(i.immediate) >= committed) return false;
    }
    std::memcpy(&shared.bytes[copy.destination], copy.data, copy.bytes);
    std::memset(&shared.written[copy.destination], 1, copy.bytes);
    return true;
  };
  copies.erase(std::remove_if(copies.begin(), copies.end(), arrived), copies.end());
}

}  // namespace

bool DecodeAsync(Opcode op, Instruction* i, OperandList* operands) {
  if (!op.Is({"cp"}) || !op.Take("async")) return false;
  if (op.Take("commit_group")) {
    i->handler = &Commit;
    return op.Done();
  }
  if (op.Take("wait_group")) {
    i->handler = &Wait;
    *operands = "i";
    return op.Done();
  }
  if (op.Take("wait_all")) {
    i->handler = &Wait;
    i->mode = 1;
    return op.Done();
  }
  if (op.TakeOneOf({"ca", "cg"}) < 0 || op.TakeOneOf({"shared", "shared::cta"}) < 0 || !op.Take("global")) return false;
  op.TakeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  i->handler = &Issue;
  i->type = Type::kU32;
  *operands = "a a s4 s4?";
  return op.Done();
}

}  // namespace baton::ptx
