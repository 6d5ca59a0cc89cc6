// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/pull_policy.h"

#include <algorithm>

namespace baton {
namespace {

// Before the first pull: three messages by way of the router, and a link that is no faster than a small network's.
constexpr double kInitialFixedMs = 3;
constexpr double kInitialBytesPerMs = 500e3;
// Of a worker that has computed nothing yet, as the router has it.
constexpr double kUnknownMsPerToken = 1;
// A pull of less says what any pull costs, one of more what its bytes cost.
constexpr double kSmallBytes = 1 << 20;
// How much one pull counts against those before it.
constexpr double kNew = 0.25;
// A pull that was thought too slow is never measured: every time, the estimate comes so far back to where it began.
constexpr double kForget = 0.05;
// Patience: so many times as long as computing takes, but time enough for a machine that is busy.
constexpr double kPatience = 2;
constexpr absl::Duration kLeastPatience = absl::Seconds(2);

}  // namespace

PullPolicy::PullPolicy(PullHistory mode, size_t token_bytes, absl::Duration transfer_timeout, const Clock* clock)
    : mode_(mode),
      token_bytes_(static_cast<double>(token_bytes)),
      transfer_timeout_(transfer_timeout),
      clock_(clock),
      initial_ms_per_token_(token_bytes_ / kInitialBytesPerMs),
      fixed_ms_(kInitialFixedMs),
      ms_per_token_(initial_ms_per_token_) {}

bool PullPolicy::ShouldPull(const Source& source, int num_tokens, double compute_ms_per_token) {
  if (mode_ == PullHistory::kNever || num_tokens <= 0 || num_open_ >= kMaxOpen) return false;
  const MonotonicTime now = clock_->Now();
  std::erase_if(paused_until_, [now](const auto& entry) { return entry.second <= now; });
  if (paused_until_.contains(source)) return false;
  if (mode_ == PullHistory::kAlways) return true;
  const double compute_ms = num_tokens * (compute_ms_per_token > 0 ? compute_ms_per_token : kUnknownMsPerToken);
  if (EstimateMs(num_tokens) < compute_ms) return true;
  const auto forget = [](double* estimate, double initial) {
    if (*estimate > initial) *estimate += kForget * (initial - *estimate);
  };
  forget(&fixed_ms_, kInitialFixedMs);
  forget(&ms_per_token_, initial_ms_per_token_);
  return false;
}

absl::Duration PullPolicy::Patience(int num_tokens, double compute_ms_per_token) const {
  const double compute_ms = num_tokens * (compute_ms_per_token > 0 ? compute_ms_per_token : kUnknownMsPerToken);
  return std::min(transfer_timeout_, std::max(kLeastPatience, absl::Milliseconds(kPatience * compute_ms)));
}

void PullPolicy::OnPulled(int64_t bytes, absl::Duration took) {
  --num_open_;
  const double ms = ToMs(took);
  if (static_cast<double>(bytes) < kSmallBytes) {
    fixed_ms_ += kNew * (ms - fixed_ms_);
    return;
  }
  const double tokens = static_cast<double>(bytes) / token_bytes_;
  const double measured = std::max(0.0, ms - fixed_ms_) / tokens;
  ms_per_token_ += kNew * (measured - ms_per_token_);
}

void PullPolicy::OnFailed(const Source& source, const absl::Status& why) {
  --num_open_;
  paused_until_[source] = clock_->Now() + (absl::IsFailedPrecondition(why) ? kUnfitPause : kPause);
}

}  // namespace baton
