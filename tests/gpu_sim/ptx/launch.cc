// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/launch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/gpu_sim/ptx/warp.h"

namespace baton::ptx {
namespace {

constexpr int kSlice = 4096;  // Instructions a warp runs before the next one's turn: a spin on another warp's flag ends.

absl::Status CheckShape(const Kernel& kernel, const LaunchShape& shape, size_t parameter_bytes) {
  const auto invalid = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("launching ", kernel.name, ": ", what));
  };
  const Dim3& block = shape.block;
  const Dim3& grid = shape.grid;
  if (block.count() == 0 || block.count() > static_cast<uint64_t>(kernel.max_threads) || block.x > 1024 || block.y > 1024 || block.z > 64) {
    return invalid(absl::StrCat("block of ", block.x, " x ", block.y, " x ", block.z, " threads; at most ", kernel.max_threads));
  }
  if (grid.count() == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return invalid(absl::StrCat("grid of ", grid.x, " x ", grid.y, " x ", grid.z, " blocks; at most 2^31-1 x 65535 x 65535"));
  }
  if (grid.count() * block.count() > 0xffffffffu) return invalid("more than 2^32 threads, which is not interpreted");
  const uint64_t shared = uint64_t{kernel.shared_bytes} + shape.dynamic_shared_bytes;
  if (shared > kMaxSharedBytes) return invalid(absl::StrCat(shared, " bytes of shared memory; at most ", kMaxSharedBytes));
  if (parameter_bytes != kernel.parameter_bytes) {
    return invalid(absl::StrCat(parameter_bytes, " bytes of parameters; it has ", kernel.parameter_bytes));
  }
  return absl::OkStatus();
}

// All live threads are at the same barrier: they pass it together, and what they did before it is ordered before what comes.
bool PassBarrier(LaunchState* state, std::vector<Warp>* warps) {
  int number = -1;
  for (const Warp& warp : *warps) {
    if (warp.done()) continue;
    if (warp.AtBarrier() != warp.live() || warp.BarrierNumber() < 0) return false;
    if (number >= 0 && number != warp.BarrierNumber()) return false;
    number = warp.BarrierNumber();
  }
  if (number < 0) return false;
  for (Warp& warp : *warps) warp.LeaveBarrier();
  ++state->block_epoch;
  return true;
}

void RunBlock(LaunchState* state) {
  SharedMemory& shared = state->shared;
  std::fill(shared.bytes.begin(), shared.bytes.end(), 0xff);  // As a float, a NaN.
  std::fill(shared.written.begin(), shared.written.end(), 0);
  ++state->block_epoch;
  std::vector<Warp> warps;
  const uint32_t num_warps = (state->threads_per_block + kWarpSize - 1) / kWarpSize;
  warps.reserve(num_warps);
  for (uint32_t i = 0; i < num_warps; ++i) {
    warps.emplace_back(state, kWarpSize * (state->options->reverse_warps ? num_warps - 1 - i : i));
  }
  for (;;) {
    bool ran = false, done = true;
    for (Warp& warp : warps) {
      ran = warp.Run(kSlice) || ran;
      done = done && warp.done();
      if (state->aborted) return;
    }
    if (done) return;
    if (state->report.counters.warp_instructions > state->options->max_instructions) {
      state->Report(FindingKind::kTooLong, 0, "a block", absl::StrCat("more than ", state->options->max_instructions, " instructions"));
      state->aborted = true;
      return;
    }
    if (ran || PassBarrier(state, &warps)) continue;
    std::string waits;
    int line = 0;
    for (const Warp& warp : warps) {
      if (!warp.done()) absl::StrAppend(&waits, waits.empty() ? "" : "; ", warp.DescribeWaits());
    }
    state->Report(FindingKind::kDeadlock, line, absl::StrCat("block (", state->block_index.x, ",", state->block_index.y, ",",
                                                             state->block_index.z, ")"), waits);
    state->aborted = true;
    return;
  }
}

}  // namespace

const char* NameOf(FindingKind kind) {
  switch (kind) {
    case FindingKind::kOutOfBounds: return "out of bounds";
    case FindingKind::kMisaligned: return "misaligned address";
    case FindingKind::kUninitializedShared: return "shared memory read before it was written";
    case FindingKind::kSharedRace: return "race in shared memory";
    case FindingKind::kGlobalRace: return "race in global memory";
    case FindingKind::kBarrier: return "barrier";
    case FindingKind::kWarpSync: return "warp synchronisation";
    case FindingKind::kDeadlock: return "deadlock";
    case FindingKind::kTooLong: return "too long";
    case FindingKind::kTrap: return "trap";
  }
  return "?";
}

std::string LaunchReport::ToString() const {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, finding.message, finding.count > 1 ? absl::StrCat(" (", finding.count, " times)") : "", "\n");
  }
  return text;
}

absl::StatusOr<LaunchReport> Launch(const Module& module, const Kernel& kernel, const LaunchShape& shape,
                                    const std::vector<uint8_t>& parameters, const GlobalMemory& memory,
                                    const LaunchOptions& options) {
  if (absl::Status status = CheckShape(kernel, shape, parameters.size()); !status.ok()) return status;
  LaunchState state;
  state.kernel = &kernel;
  state.shape = shape;
  state.options = &options;
  state.parameters = parameters.data();
  std::vector<MemoryRange> ranges = memory.Snapshot()->ranges();
  for (const auto& variable : module.variables) {
    const uint64_t begin = reinterpret_cast<uint64_t>(variable->bytes.data());
    ranges.push_back({begin, begin + variable->bytes.size()});
  }
  std::sort(ranges.begin(), ranges.end(), [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  state.ranges = MemoryRanges(std::move(ranges));
  state.threads_per_block = static_cast<uint32_t>(shape.block.count());
  state.shared_rules = RaceRules(state.threads_per_block, false);
  state.global_rules = RaceRules(state.threads_per_block, true);
  state.global_shadow = GlobalShadow(options.check_races ? options.max_shadow_pages : 0);
  const size_t shared_bytes = (kernel.shared_bytes + 15) / 16 * 16 + shape.dynamic_shared_bytes;
  state.shared.bytes.resize(shared_bytes);
  state.shared.written.resize(shared_bytes);
  state.shared.cells.resize(shared_bytes / 2 + 1);
  for (uint32_t z = 0; z < shape.grid.z && !state.aborted; ++z) {
    for (uint32_t y = 0; y < shape.grid.y && !state.aborted; ++y) {
      for (uint32_t x = 0; x < shape.grid.x && !state.aborted; ++x) {
        state.block_index = {x, y, z};
        RunBlock(&state);
        ++state.block_number;
      }
    }
  }
  state.report.aborted = state.aborted;
  state.report.global_races_checked = options.check_races && !state.global_shadow.full();
  return std::move(state.report);
}

}  // namespace baton::ptx
