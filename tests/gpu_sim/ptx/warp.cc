// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/warp.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace baton::ptx {

Warp::Warp(LaunchState* launch, uint32_t first_thread)
    : launch_(launch), first_thread_(first_thread), registers_(launch->kernel->registers) {
  const uint32_t threads = std::min<uint32_t>(kWarpSize, launch->threads_per_block - first_thread);
  live_ = threads == kWarpSize ? kAllLanes : (1u << threads) - 1;
  groups_.push_back({.pc = 0, .lanes = live_});
  local_.assign(static_cast<size_t>(kWarpSize) * launch->kernel->local_bytes, 0xff);
  FillSpecialRegisters();
}

void Warp::FillSpecialRegisters() {
  const Dim3 block = launch_->shape.block;
  const Dim3 grid = launch_->shape.grid;
  for (const SpecialRegister& special : launch_->kernel->special) {
    uint32_t* const out = Lanes<uint32_t>(special.slot);
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      const uint32_t thread = first_thread_ + lane;
      const uint32_t below = (1u << lane) - 1;
      const uint32_t values[] = {thread % block.x, thread / block.x % block.y, thread / block.x / block.y,
                                 block.x, block.y, block.z,
                                 launch_->block_index.x, launch_->block_index.y, launch_->block_index.z,
                                 grid.x, grid.y, grid.z, lane, first_thread_ / kWarpSize,
                                 1u << lane, below, below | 1u << lane, ~(below | 1u << lane), ~below};
      out[lane] = values[static_cast<int>(special.which)];
    }
  }
}

int Warp::PickGroup() const {
  int best = -1;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].waiting != Waiting::kNothing) continue;
    if (best < 0 || groups_[i].pc < groups_[static_cast<size_t>(best)].pc) best = static_cast<int>(i);
  }
  return best;
}

bool Warp::Run(int budget) {
  bool ran = false;
  while (budget > 0 && !launch_->aborted) {
    const int index = PickGroup();
    if (index < 0) {
      if (!CompleteWaits()) return ran;
      continue;
    }
    int limit = INT32_MAX;  // Where the next group stands.
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (static_cast<int>(i) != index && groups_[i].waiting == Waiting::kNothing) limit = std::min(limit, groups_[i].pc);
    }
    Step(static_cast<size_t>(index), limit, &budget);
    Merge();
    ran = true;
  }
  return ran;
}

// Runs one group until it reaches `limit`, splits, waits or ends.
void Warp::Step(size_t index, int limit, int* budget) {
  const Instruction* const code = launch_->kernel->code.data();
  do {
    Group& group = groups_[index];
    const Instruction& instruction = code[group.pc];
    running_ = group.lanes;
    uint32_t active = group.lanes;
    if (instruction.guard >= 0) {
      const uint32_t predicate = Predicate(static_cast<uint32_t>(instruction.guard));
      active &= instruction.guard_negated ? ~predicate : predicate;
    }
    --*budget;
    ++launch_->report.counters.warp_instructions;
    switch (instruction.flow) {
      case Flow::kNext:
        if (active != 0) instruction.handler(*this, instruction, active);
        ++group.pc;
        break;
      case Flow::kBranch:
        if (Branch(index, instruction, active)) return;
        break;
      case Flow::kExit:
        live_ &= ~active;
        group.lanes &= ~active;
        ++group.pc;
        if (group.lanes == 0) {
          groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(index));
          return;
        }
        break;
      case Flow::kBarrier:
      case Flow::kCollective:
        if (active == 0) {
          ++group.pc;
          break;
        }
        if (active != group.lanes) {  // Those whose guard is false go past it.
          groups_.push_back({.pc = group.pc + 1, .lanes = group.lanes & ~active});
          groups_[index].lanes = active;
          if (instruction.flow == Flow::kBarrier) groups_[index].waiting = Waiting::kBarrier;
          else Collect(index, instruction, active);
          return;
        }
        if (instruction.flow == Flow::kBarrier) {
          group.waiting = Waiting::kBarrier;
          return;
        }
        if (!Collect(index, instruction, active)) return;
        break;
    }
    if (launch_->aborted) return;
  } while (groups_[index].pc < limit && *budget > 0);
}

// True: the group split.
bool Warp::Branch(size_t index, const Instruction& instruction, uint32_t active) {
  Group& group = groups_[index];
  const int target = static_cast<int>(instruction.immediate);
  if (active == group.lanes) {
    group.pc = target;
    return false;
  }
  ++group.pc;
  if (active == 0) return false;
  ++launch_->report.counters.divergent_branches;
  group.lanes &= ~active;
  groups_.push_back({.pc = target, .lanes = active});
  return true;
}

// A shuffle, vote or bar.warp.sync of `active` lanes, which are all of the group: executed once all lanes that it names are here.
// True: it was, by all of the group.
bool Warp::Collect(size_t index, const Instruction& instruction, uint32_t active) {
  const uint32_t* const named = Lanes<uint32_t>(instruction.slot(instruction.num_operands - 1));
  const int pc = groups_[index].pc;
  const uint32_t mask = named[std::countr_zero(active)];
  uint32_t same = 0;
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if ((named[lane] >> lane & 1) == 0) {
      Report(FindingKind::kWarpSync, instruction, lane, absl::StrCat("its mask 0x", absl::Hex(named[lane]), " does not name it"));
      launch_->aborted = true;
      return false;
    }
    if (named[lane] == mask) same |= 1u << lane;
  }
  if (same != active) {  // Several masks: each for itself.
    groups_.push_back({.pc = pc, .lanes = active & ~same});
    groups_[index].lanes = same;
  }
  groups_[index].waiting = Waiting::kLanes;
  groups_[index].wanted = mask;
  return Complete(index) && same == active;
}

// Executes what group `index` waits with, if all lanes are there; those that wait elsewhere for the same lanes are not. True: it
// ran, and no other group was part of it.
bool Warp::Complete(size_t index) {
  const Group group = groups_[index];
  uint32_t here = 0;
  for (const Group& other : groups_) {
    if (other.waiting == Waiting::kLanes && other.pc == group.pc && other.wanted == group.wanted) here |= other.lanes;
  }
  if (here != (group.wanted & live_)) return false;
  const Instruction& instruction = launch_->kernel->code[static_cast<size_t>(group.pc)];
  running_ = here;
  instruction.handler(*this, instruction, here);
  for (Group& other : groups_) {
    if (other.waiting != Waiting::kLanes || other.pc != group.pc || other.wanted != group.wanted) continue;
    other.waiting = Waiting::kNothing;
    other.wanted = 0;
    ++other.pc;
  }
  return here == group.lanes;
}

// Lanes that a group waits for may have exited since.
bool Warp::CompleteWaits() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].waiting != Waiting::kLanes) continue;
    const int pc = groups_[i].pc;
    Complete(i);
    if (groups_[i].pc == pc) continue;
    Merge();
    return true;
  }
  return false;
}

void Warp::Merge() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (size_t j = i + 1; j < groups_.size();) {
      if (groups_[i].pc == groups_[j].pc && groups_[i].waiting == groups_[j].waiting && groups_[i].wanted == groups_[j].wanted) {
        groups_[i].lanes |= groups_[j].lanes;
        groups_.erase(groups_.begin() + static_cast<ptrdiff_t>(j));
      } else {
        ++j;
      }
    }
  }
}

uint32_t Warp::AtBarrier() const {
  uint32_t lanes = 0;
  for (const Group& group : groups_) lanes |= group.waiting == Waiting::kBarrier ? group.lanes : 0;
  return lanes;
}

int Warp::BarrierNumber() const {
  int number = -1;
  for (const Group& group : groups_) {
    if (group.waiting != Waiting::kBarrier) continue;
    const int here = static_cast<int>(launch_->kernel->code[static_cast<size_t>(group.pc)].immediate);
    if (number >= 0 && number != here) return -1;
    number = here;
  }
  return number;
}

void Warp::LeaveBarrier() {
  int pc = -1;
  for (Group& group : groups_) {
    if (group.waiting != Waiting::kBarrier) continue;
    if (pc >= 0 && pc != group.pc) {
      const Instruction& other = launch_->kernel->code[static_cast<size_t>(pc)];
      Report(FindingKind::kBarrier, launch_->kernel->code[static_cast<size_t>(group.pc)], std::countr_zero(group.lanes),
             absl::StrCat("threads of one warp wait at different barriers, the other one in line ", other.line));
    }
    pc = group.pc;
    group.waiting = Waiting::kNothing;
    ++group.pc;
  }
  Merge();
}

void Warp::OrderLanes(uint32_t lanes) {
  ++last_epoch_;
  for (; lanes != 0; lanes &= lanes - 1) lane_epoch_[std::countr_zero(lanes)] = last_epoch_;
}

std::string Warp::DescribeWaits() const {
  std::string text;
  for (const Group& group : groups_) {
    const Instruction& instruction = launch_->kernel->code[static_cast<size_t>(group.pc)];
    absl::StrAppend(&text, text.empty() ? "" : "; ", "warp ", first_thread_ / kWarpSize, " lanes 0x", absl::Hex(group.lanes),
                    group.waiting == Waiting::kBarrier ? " wait at bar.sync in line "
                    : group.waiting == Waiting::kLanes ? " wait for lanes of their mask in line " : " run in line ",
                    instruction.line);
    if (group.waiting == Waiting::kLanes) absl::StrAppend(&text, " (mask 0x", absl::Hex(group.wanted), ")");
  }
  return text;
}

void Warp::Report(FindingKind kind, const Instruction& instruction, int lane, const std::string& what) {
  const Dim3 at = launch_->block_index;
  launch_->Report(kind, instruction.line, absl::StrCat("block (", at.x, ",", at.y, ",", at.z, ") thread ", first_thread_ + static_cast<uint32_t>(lane)), what);
  if (kind == FindingKind::kOutOfBounds || kind == FindingKind::kMisaligned || kind == FindingKind::kTrap) launch_->aborted = true;
}

void LaunchState::Report(FindingKind kind, int line, const std::string& where, const std::string& what) {
  for (Finding& known : report.findings) {
    if (known.kind == kind && known.line == line) {
      ++known.count;
      return;
    }
  }
  report.findings.push_back(
      {kind, line, absl::StrCat(kernel->name, " line ", line, ", ", where, ": ", NameOf(kind), ": ", what)});
}

}  // namespace baton::ptx
