// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_COMPUTE_TURNS_H_
#define BATON_COMMON_ENGINE_COMPUTE_TURNS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

// What the processes of a group tell each other, in shared memory. Every statement is a time until which it holds (CLOCK_MONOTONIC
// in nanoseconds), so that a process that dies or hangs holds nobody up for long.
struct TurnSlot {
  std::atomic<int64_t> pid{0};           // 0: free.
  std::atomic<int64_t> busy_until{0};    // Token steps: prefill stands back until then ...
  std::atomic<int64_t> window_until{0};  // ... but for this window between two of them.
  std::atomic<int64_t> wants_until{0};   // Prefill has work.
  std::atomic<int64_t> waits_since{0};   // Its oldest prompt.
  int64_t reserved[3] = {};
};
struct TurnTable {
  static constexpr int kNumSlots = 63;
  std::atomic<uint32_t> changes{0};  // A futex: moves when somebody who waits may go on.
  uint32_t reserved[15] = {};
  TurnSlot slots[kNumSlots];
};

// Turns of worker processes that share cores. Threads of a token step meet hundreds of times per step; with prefill threads
// of another process on the same cores each meeting can cost a time slice of the system's. So they do not run at once: after
// a step decode leaves a window, as long as PrefillSlice says, and prefill computes its units (a layer of a row panel) in
// windows only, or whenever no token step is near. While nobody wants a window, none is left.
//
// Decode workers of a group do not take turns with each other, nor do prefill workers. Owner: the engine thread.
class ComputeTurns {
 public:
  // Joins the group `name` of this machine and user, founding it if need be.
  //   INVALID_ARGUMENT    a name that is no file name.
  //   RESOURCE_EXHAUSTED  no free slot, or no shared memory.
  static absl::StatusOr<std::unique_ptr<ComputeTurns>> Join(const std::string& name);
  // Over a table that outlives this; for tests. RESOURCE_EXHAUSTED as above.
  static absl::StatusOr<std::unique_ptr<ComputeTurns>> JoinTable(TurnTable* table);
  // Leaves. The last to leave removes the group (after a kill a page of shared memory stays behind until the name is used again).
  ~ComputeTurns();

  // Decode: around every token step. `window`: what prefill may have before the next; `more`: there will be a next.
  void BeginStep(MonotonicTime now);
  void EndStep(MonotonicTime now, absl::Duration window, bool more);
  // False while a window is open and somebody uses it.
  bool StepMayBegin(MonotonicTime now) const;
  // How long the oldest prompt of the group's prefill processes has waited; zero when none wants anything.
  absl::Duration OldestWait(MonotonicTime now) const;

  // Prefill: before every unit. `arrived`: of its oldest prompt.
  void Want(MonotonicTime now, MonotonicTime arrived);
  void WantNothing();
  // False while a token step runs, or the window is too short for what units took of late.
  bool UnitMayBegin(MonotonicTime now) const;
  void NoteUnit(absl::Duration took);

  // Until something changes, at most so long. May return early.
  void Wait(absl::Duration at_most) const;

 private:
  struct Mapping;
  ComputeTurns(TurnTable* table, TurnSlot* own);
  static absl::StatusOr<TurnSlot*> TakeSlot(TurnTable* table);
  void NotifyChange();

  std::unique_ptr<Mapping> mapping_;  // None over a table of somebody else's.
  TurnTable* const table_;
  TurnSlot* const own_;
  absl::Duration unit_ = absl::ZeroDuration();  // Exponential mean.
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_COMPUTE_TURNS_H_
