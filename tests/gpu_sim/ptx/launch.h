// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_LAUNCH_H_
#define BATON_TESTS_GPU_SIM_PTX_LAUNCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/gpu_sim/ptx/memory.h"
#include "tests/gpu_sim/ptx/program.h"

namespace baton::ptx {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct LaunchShape {
  Dim3 grid;
  Dim3 block;
  uint32_t dynamic_shared_bytes = 0;
};

struct LaunchOptions {
  bool check_races = true;
  bool reverse_warps = false;  // The order in which the warps of a block get their turns.
  // Warp instructions, all blocks together; more is a finding: a loop that waits for what never comes.
  uint64_t max_instructions = uint64_t{1} << 31;
  size_t max_shadow_pages = size_t{1} << 14;  // KiB of global memory whose races are checked.
};

// What a kernel did wrong. The first two end the launch where they happen, as on a device; so do a deadlock, a trap and the limit.
enum class FindingKind {
  kOutOfBounds, kMisaligned, kUninitializedShared, kSharedRace, kGlobalRace, kBarrier, kWarpSync, kDeadlock, kTooLong, kTrap
};
const char* NameOf(FindingKind kind);

struct Finding {
  FindingKind kind;
  int line;             // Of the PTX text.
  std::string message;  // Has kernel, line, block and thread.
  uint64_t count = 1;   // Of this kind at this line.
};

// Per launch. A sector is 32 bytes of global memory, a wavefront one pass over the 32 banks of shared memory. Ideal: what the
// bytes that were asked for would take if they lay side by side.
struct Counters {
  uint64_t warp_instructions = 0;
  uint64_t divergent_branches = 0;
  uint64_t global_requests = 0;
  uint64_t sectors = 0;
  uint64_t ideal_sectors = 0;
  uint64_t wavefronts = 0;
  uint64_t ideal_wavefronts = 0;
};

struct LaunchReport {
  std::vector<Finding> findings;  // One per kind and line, in order of appearance.
  Counters counters;
  bool aborted = false;           // Not all threads came to their end.
  bool global_races_checked = true;  // False: more memory was touched than max_shadow_pages.

  std::string ToString() const;
};

inline constexpr uint32_t kMaxSharedBytes = 227 * 1024;  // Of a block, on sm_80 (163 KiB) and sm_90 the most.

// Runs a grid, block after block, on the calling thread. `parameters` are the kernel's, laid out as in Kernel::parameters.
//   INVALID_ARGUMENT  a shape that no device takes: names it and the bound; or parameters of another size.
absl::StatusOr<LaunchReport> Launch(const Module& module, const Kernel& kernel, const LaunchShape& shape,
                                    const std::vector<uint8_t>& parameters, const GlobalMemory& memory,
                                    const LaunchOptions& options = {});

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_LAUNCH_H_
