// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PHASE_CLOCK_H_
#define BATON_ROUTER_PHASE_CLOCK_H_

#include <algorithm>
#include <array>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

enum class Phase { kQueued, kTokenise, kLanding, kPrefill, kTransferExposed, kFirstStep, kDecode };
inline constexpr int kNumPhases = 7;

// Where a request's time went, on this process's clock. A request is in one phase at any time, so that the phases add up
// to the total by construction; a phase may be entered several times (retries). Pure.
class PhaseClock {
 public:
  struct Interval {
    Phase phase;
    MonotonicTime begin, end;
  };
  static constexpr size_t kMaxIntervals = 64;  // Of a request that is retried for ever the first ones are kept.

  PhaseClock(Phase first, MonotonicTime now) : start_(now), entered_(now), phase_(first) {}

  void Enter(Phase phase, MonotonicTime now) {
    Stop(now);
    phase_ = phase;
  }
  // Accounts for the time until `now`, staying in the phase.
  void Stop(MonotonicTime now) {
    if (now < entered_) now = entered_;
    spent_[static_cast<int>(phase_)] += now - entered_;
    if (keeps_intervals_) Extend(now);
    entered_ = now;
  }
  // Corrects what was learnt late: moves up to `amount` of what one phase has into another.
  void Move(Phase from, Phase to, absl::Duration amount) {
    absl::Duration& source = spent_[static_cast<int>(from)];
    if (amount > source) amount = source;
    if (amount <= absl::ZeroDuration()) return;
    source -= amount;
    spent_[static_cast<int>(to)] += amount;
    if (keeps_intervals_) Split(from, to, amount);
  }
  // From now on: what passes is kept as intervals(), too.
  void KeepIntervals() { keeps_intervals_ = true; }

  Phase phase() const { return phase_; }
  MonotonicTime start() const { return start_; }
  absl::Duration spent(Phase phase) const { return spent_[static_cast<int>(phase)]; }
  absl::Duration total() const { return entered_ - start_; }
  // What has passed, in order.
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  void Extend(MonotonicTime now) {
    if (now == entered_) return;
    if (!intervals_.empty() && intervals_.back().phase == phase_ && intervals_.back().end == entered_) {
      intervals_.back().end = now;
    } else if (intervals_.size() < kMaxIntervals) {
      intervals_.push_back({phase_, entered_, now});
    }
  }
  // The end of the last interval of `from` was `to`'s.
  void Split(Phase from, Phase to, absl::Duration amount) {
    const auto last = std::find_if(intervals_.rbegin(), intervals_.rend(), [from](const Interval& i) { return i.phase == from; });
    if (last == intervals_.rend() || intervals_.size() >= kMaxIntervals) return;
    const MonotonicTime end = last->end, cut = std::max(last->begin, end - amount);
    last->end = cut;
    intervals_.insert(last.base(), {to, cut, end});
  }

  MonotonicTime start_, entered_;
  Phase phase_;
  std::array<absl::Duration, kNumPhases> spent_{};
  bool keeps_intervals_ = false;
  std::vector<Interval> intervals_;
};

}  // namespace baton

#endif  // BATON_ROUTER_PHASE_CLOCK_H_
