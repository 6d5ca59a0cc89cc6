// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_SCHEDULER_H_
#define BATON_COMMON_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

struct SchedulerOptions {
  int max_step_rows = 512;  // Rows of one step.
  int max_running = 64;     // Decode rows among them.
  // Prefill rows are counted with the decode rows of the same step; otherwise a prefill pass has max_step_rows to itself.
  bool mixed_steps = false;
  // Among equals the prompt with the least left goes first, not the one that came first.
  bool shortest_remaining_first = false;
  // Who has waited this long goes before all who have not, whatever their priority and length, and nobody may take blocks
  // past it.
  absl::Duration ageing_bound = absl::Seconds(5);
};

// A sequence whose next step is one token.
struct RunningSequence {
  int priority = 0;          // Higher first.
  uint64_t order = 0;        // Of arrival; distinct.
  int blocks_needed = 0;     // For its next row: 0 or 1.
  bool preemptible = false;  // It has made progress since it was last preempted.
  int blocks_released = 0;   // Blocks that preempting it makes allocatable.
};

// A sequence that waits for KV of its tokens to be computed.
struct WaitingSequence {
  int priority = 0;
  uint64_t order = 0;
  MonotonicTime arrived;
  int tokens_left = 0;       // To compute, at least 1.
  int blocks_needed = 0;     // Before it can start: 0 when it holds its blocks.
  bool recompute = false;    // It was preempted: goes before all others.
  bool preemptible = false;  // It holds blocks that can be taken.
  int blocks_released = 0;
};

struct PrefillChunk {
  int waiting = 0;  // Index.
  int num_tokens = 0;
};

// Indices into what Plan was given.
struct Plan {
  std::vector<int> preempt_running, preempt_waiting;
  std::vector<int> decode;            // Oldest first. Those that need a block get one.
  std::vector<PrefillChunk> prefill;  // Those that need blocks get them, in this order.
  bool empty() const { return decode.empty() && prefill.empty(); }
};

// How a prefill pass and the decode steps between its units share the compute threads.
struct SharingOptions {
  // Of the time while both have work, the part that the pass gets, unless a target says otherwise: [0, 0.9]. 0: a decode step
  // never waits for more than one unit, and a pass crawls.
  double prefill_share = 0.35;
  // Time from token to token that the pass may fill up, as far as it gets at least kMinPrefillShare of the time and no more
  // than kMaxPrefillShare; zero: prefill_share alone decides.
  absl::Duration itl_target = absl::ZeroDuration();
  // A prompt that has waited this long since it arrived raises the part to at least half; zero: none does.
  absl::Duration ttft_target = absl::ZeroDuration();
};
inline constexpr double kMinPrefillShare = 0.1;
inline constexpr double kMaxPrefillShare = 0.9;

// How long prefill may run after a decode step that took `step`, before the next one is due. `oldest_wait`: of the prompts
// that wait or are under way. Pure.
absl::Duration PrefillSlice(const SharingOptions& options, absl::Duration step, absl::Duration oldest_wait);

// Who runs in the next step. Pure: time and state are arguments.
//
//  1. Decode rows, by priority, then age, at most max_running. A row that needs a block which is not there preempts the
//     youngest preemptible sequence that ranks behind it (least priority, then youngest); without one it sits this step
//     out and keeps its blocks.
//  2. Prefill chunks in the rows that are left, several sequences packed: preempted sequences first, then those that
//     waited longer than the ageing bound, then by priority, then in order of arrival (or of what is left). A sequence
//     starts only when all its blocks are there, with one more for each running sequence, so that it is not preempted at
//     once. One that does not fit lets smaller ones pass, until it has aged.
Plan MakePlan(const SchedulerOptions& options, MonotonicTime now, std::span<const WaitingSequence> waiting,
              std::span<const RunningSequence> running, int free_blocks);

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_SCHEDULER_H_
