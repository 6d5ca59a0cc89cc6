// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PHASE_CLOCK_H_
#define BATON_ROUTER_PHASE_CLOCK_H_

#include <array>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

enum class Phase { kQueued, kTokenise, kLanding, kPrefill, kTransferExposed, kFirstStep, kDecode };
inline constexpr int kNumPhases = 7;

// Where a request's time went, on this process's clock. A request is in one phase at any time, so that the phases add up
// to the total by construction; a phase may be entered several times (retries). Pure.
class PhaseClock {
 public:
  PhaseClock(Phase first, MonotonicTime now) : start_(now), entered_(now), phase_(first) {}

  void Enter(Phase phase, MonotonicTime now) {
    Stop(now);
    phase_ = phase;
  }
  // Accounts for the time until `now`, staying in the phase.
  void Stop(MonotonicTime now) {
    if (now < entered_) now = entered_;
    spent_[static_cast<int>(phase_)] += now - entered_;
    entered_ = now;
  }
  // Corrects what was learnt late: moves up to `amount` of what one phase has into another.
  void Move(Phase from, Phase to, absl::Duration amount) {
    absl::Duration& source = spent_[static_cast<int>(from)];
    if (amount > source) amount = source;
    if (amount <= absl::ZeroDuration()) return;
    source -= amount;
    spent_[static_cast<int>(to)] += amount;
  }

  Phase phase() const { return phase_; }
  MonotonicTime start() const { return start_; }
  absl::Duration spent(Phase phase) const { return spent_[static_cast<int>(phase)]; }
  absl::Duration total() const { return entered_ - start_; }

 private:
  MonotonicTime start_, entered_;
  Phase phase_;
  std::array<absl::Duration, kNumPhases> spent_{};
};

}  // namespace baton

#endif  // BATON_ROUTER_PHASE_CLOCK_H_
