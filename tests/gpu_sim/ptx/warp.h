// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_WARP_H_
#define BATON_TESTS_GPU_SIM_PTX_WARP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu_sim/ptx/launch.h"
#include "tests/gpu_sim/ptx/memory.h"
#include "tests/gpu_sim/ptx/program.h"
#include "tests/gpu_sim/ptx/race_shadow.h"
#include "tests/gpu_sim/ptx/types.h"

namespace baton::ptx {

// Shared memory of the running block.
struct SharedMemory {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> written;  // 0: nobody wrote this byte, or a cp.async to it has not been waited for.
  std::vector<RaceCell> cells;   // One per two bytes.
};

// What the warps of the running block share, and what outlives the block.
struct LaunchState {
  const Kernel* kernel = nullptr;
  LaunchShape shape;
  const LaunchOptions* options = nullptr;
  const uint8_t* parameters = nullptr;
  MemoryRanges ranges;
  RaceRules shared_rules{1, false};
  RaceRules global_rules{1, true};
  const MemoryRange* last_range = nullptr;  // That an access was found in: most of the next are there too.
  GlobalShadow global_shadow{0};
  SharedMemory shared;
  uint32_t threads_per_block = 0;
  Dim3 block_index;
  uint32_t block_number = 0;
  uint32_t block_epoch = 1;
  bool aborted = false;
  LaunchReport report;

  // Adds a finding, or counts it where there is one of its kind at its line.
  void Report(FindingKind kind, int line, const std::string& where, const std::string& what);
};

// A copy whose bytes have not arrived. Its source is read when it is issued; a device may read it at any time until the wait.
struct AsyncCopy {
  int lane;
  uint32_t group;  // kOpenGroup until it is committed.
  uint32_t destination;
  uint32_t bytes;
  uint8_t data[16];
};
inline constexpr uint32_t kOpenGroup = 0xffffffffu;

// 32 threads. They run as groups of lanes with one program counter each; the group with the lowest one goes first and stops where
// it meets another, so that the layout nvcc gives its code brings them together again.
class Warp {
 public:
  enum class Waiting : uint8_t { kNothing, kBarrier, kLanes };
  struct Group {
    int pc = 0;
    uint32_t lanes = 0;
    Waiting waiting = Waiting::kNothing;
    uint32_t wanted = 0;  // kLanes: those who must come.
  };

  // `first_thread` of the block, whose threads are numbered x fastest.
  Warp(LaunchState* launch, uint32_t first_thread);

  // Runs until nothing can, or for about `budget` instructions. Whether anything ran.
  bool Run(int budget);
  bool done() const { return groups_.empty(); }
  uint32_t live() const { return live_; }
  // Lanes that wait at bar.sync, and letting them go on.
  uint32_t AtBarrier() const;
  void LeaveBarrier();
  // The number of the barrier that lanes wait at (0 to 15); -1: none, or several.
  int BarrierNumber() const;
  // "threads 0-15 wait at bar.sync, line 12; ..." of all that wait.
  std::string DescribeWaits() const;

  // For handlers.
  template <typename T>
  T* Lanes(uint32_t slot) { return reinterpret_cast<T*>(registers_.data() + slot); }
  uint32_t& Predicate(uint32_t slot) { return *Lanes<uint32_t>(slot); }
  LaunchState& launch() { return *launch_; }
  uint32_t running() const { return running_; }  // All lanes of the running group.
  uint32_t first_thread() const { return first_thread_; }
  Actor ActorOf(int lane) const {
    return {launch_->block_number * launch_->threads_per_block + first_thread_ + static_cast<uint32_t>(lane),
            launch_->block_epoch, lane_epoch_[lane]};
  }
  // bar.warp.sync has been passed by `lanes`.
  void OrderLanes(uint32_t lanes);
  uint8_t* LocalMemory(int lane) { return local_.data() + static_cast<size_t>(lane) * launch_->kernel->local_bytes; }
  std::vector<AsyncCopy>& async_copies() { return async_copies_; }
  uint32_t& committed_groups(int lane) { return committed_groups_[lane]; }
  // A finding at this instruction, of thread `lane`; fatal ones end the launch.
  void Report(FindingKind kind, const Instruction& instruction, int lane, const std::string& what);

 private:
  void FillSpecialRegisters();
  int PickGroup() const;  // The runnable one with the lowest pc; -1: none.
  void Step(size_t index, int limit, int* budget);
  bool Branch(size_t index, const Instruction& instruction, uint32_t active);
  bool Collect(size_t index, const Instruction& instruction, uint32_t active);
  bool Complete(size_t index);
  bool CompleteWaits();
  void Merge();

  LaunchState* const launch_;
  const uint32_t first_thread_;
  uint32_t live_ = 0;
  uint32_t running_ = 0;
  std::vector<Group> groups_;
  std::vector<uint8_t> registers_;
  std::vector<uint8_t> local_;
  uint32_t lane_epoch_[kWarpSize] = {};
  uint32_t last_epoch_ = 0;
  std::vector<AsyncCopy> async_copies_;
  uint32_t committed_groups_[kWarpSize] = {};
};

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_WARP_H_
