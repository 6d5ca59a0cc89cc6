// SPDX-License-Identifier: Apache-2.0
#include "common/engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace baton {
namespace {

class Planner {
 public:
  Planner(const SchedulerOptions& options, MonotonicTime now, std::span<const WaitingSequence> waiting,
          std::span<const RunningSequence> running, int free_blocks)
      : options_(options), now_(now), waiting_(waiting), running_(running), free_(free_blocks),
        running_preempted_(running.size(), false), waiting_preempted_(waiting.size(), false) {}

  Plan Make() {
    PlanDecode();
    PlanPrefill();
    return std::move(plan_);
  }

 private:
  // What is preempted comes last: least priority, then youngest.
  template <typename T>
  static auto PreemptionRank(const T& s) {
    return std::tuple(-s.priority, s.order);
  }

  void PlanDecode() {
    std::vector<int> order(running_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int i) { return PreemptionRank(running_[i]); });
    for (int i : order) {
      if (static_cast<int>(plan_.decode.size()) >= options_.max_running) break;
      if (running_preempted_[i]) continue;
      const int needed = running_[i].blocks_needed;
      while (free_ < needed && PreemptBehind(PreemptionRank(running_[i]))) {
      }
      if (free_ < needed) continue;
      free_ -= needed;
      plan_.decode.push_back(i);
    }
  }

  // Preempts the last preemptible sequence ranked behind `rank` that would release a block. False when there is none.
  bool PreemptBehind(std::tuple<int, uint64_t> rank) {
    int victim = -1;
    bool is_running = false;
    for (size_t i = 0; i < running_.size(); ++i) {
      const RunningSequence& s = running_[i];
      if (!s.preemptible || running_preempted_[i] || s.blocks_released == 0 || PreemptionRank(s) <= rank) continue;
      rank = PreemptionRank(s);
      victim = static_cast<int>(i);
      is_running = true;
    }
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const WaitingSequence& s = waiting_[i];
      if (!s.preemptible || waiting_preempted_[i] || s.blocks_released == 0 || PreemptionRank(s) <= rank) continue;
      rank = PreemptionRank(s);
      victim = static_cast<int>(i);
      is_running = false;
    }
    if (victim < 0) return false;
    (is_running ? running_preempted_ : waiting_preempted_)[victim] = true;
    (is_running ? plan_.preempt_running : plan_.preempt_waiting).push_back(victim);
    free_ += is_running ? running_[victim].blocks_released : waiting_[victim].blocks_released;
    return true;
  }

  bool Aged(const WaitingSequence& s) const { return now_ - s.arrived >= options_.ageing_bound; }

  void PlanPrefill() {
    int rows = options_.max_step_rows - (options_.mixed_steps ? static_cast<int>(plan_.decode.size()) : 0);
    const int reserve = static_cast<int>(running_.size() - plan_.preempt_running.size());
    std::vector<int> order(waiting_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int i) {
      const WaitingSequence& s = waiting_[i];
      const bool by_arrival = s.recompute || Aged(s);
      return std::tuple(!s.recompute, !Aged(s), by_arrival ? 0 : -s.priority,
                        !by_arrival && options_.shortest_remaining_first ? s.tokens_left : 0, s.order);
    });
    bool may_start = true;
    for (int i : order) {
      if (rows <= 0) break;
      const WaitingSequence& s = waiting_[i];
      if (waiting_preempted_[i]) continue;
      if (s.blocks_needed > 0) {
        if (!may_start) continue;
        if (s.blocks_needed + reserve > free_) {
          if (s.recompute || Aged(s)) may_start = false;
          continue;
        }
        free_ -= s.blocks_needed;
      }
      const int num_tokens = std::min(rows, s.tokens_left);
      plan_.prefill.push_back({i, num_tokens});
      rows -= num_tokens;
    }
  }

  const SchedulerOptions& options_;
  const MonotonicTime now_;
  const std::span<const WaitingSequence> waiting_;
  const std::span<const RunningSequence> running_;
  int free_;
  std::vector<bool> running_preempted_, waiting_preempted_;
  Plan plan_;
};

}  // namespace

absl::Duration PrefillSlice(const SharingOptions& options, absl::Duration step, absl::Duration oldest_wait) {
  // A part s of the time for prefill is s / (1 - s) of a step after each step.
  const auto of_step = [step](double share) { return step * (share / (1 - share)); };
  absl::Duration slice = of_step(options.prefill_share);
  if (options.itl_target > absl::ZeroDuration()) {
    slice = std::clamp(options.itl_target - step, of_step(kMinPrefillShare), of_step(kMaxPrefillShare));
  }
  const bool late = options.ttft_target > absl::ZeroDuration() && oldest_wait > options.ttft_target;
  return late ? std::max(slice, of_step(0.5)) : slice;
}

Plan MakePlan(const SchedulerOptions& options, MonotonicTime now, std::span<const WaitingSequence> waiting,
              std::span<const RunningSequence> running, int free_blocks) {
  return Planner(options, now, waiting, running, free_blocks).Make();
}

}  // namespace baton
