// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_PREFILL_WORKER_PULL_POLICY_H_
#define BATON_PREFILL_WORKER_PULL_POLICY_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/worker/worker_options.h"

namespace baton {

// Whether the beginning of a prompt is had sooner from the decode worker that has it than by computing it, by what pulls and
// computation have taken of late. One thread (the engine's).
class PullPolicy {
 public:
  // Pulls under way at most; each holds blocks and a link's time.
  static constexpr int kMaxOpen = 16;
  // After a pull that failed, whyever, its decode worker is not asked again for so long: what makes one fail may cost the next
  // as much time.
  static constexpr absl::Duration kPause = absl::Seconds(10);
  // After one that failed for what the two workers are (FAILED_PRECONDITION): no next one will do better, as far as is known.
  static constexpr absl::Duration kUnfitPause = absl::Minutes(10);
  using Source = std::pair<std::string, uint64_t>;  // A decode worker and its incarnation: another one may be fit.

  // `token_bytes`: of KV. `clock` outlives it.
  PullPolicy(PullHistory mode, size_t token_bytes, absl::Duration transfer_timeout, const Clock* clock);

  // Whether to ask `source` for `num_tokens` tokens. `compute_ms_per_token`: 0 when nothing has been computed yet.
  bool ShouldPull(const Source& source, int num_tokens, double compute_ms_per_token);
  // When a pull of them is given up: not long after they would have been computed.
  absl::Duration Patience(int num_tokens, double compute_ms_per_token) const;

  // A pull that ShouldPull allowed has begun, and how it ended.
  void OnBegin() { ++num_open_; }
  void OnPulled(int64_t bytes, absl::Duration took);
  void OnFailed(const Source& source, const absl::Status& why);
  void OnGivenUp() { --num_open_; }  // Nobody wanted it any more.

  // What a pull takes, as of now: so long in any case, and so long for each token.
  double fixed_ms() const { return fixed_ms_; }
  double ms_per_token() const { return ms_per_token_; }

 private:
  double EstimateMs(int num_tokens) const { return fixed_ms_ + num_tokens * ms_per_token_; }

  const PullHistory mode_;
  const double token_bytes_;
  const absl::Duration transfer_timeout_;
  const Clock* const clock_;
  const double initial_ms_per_token_;
  int num_open_ = 0;
  std::map<Source, MonotonicTime> paused_until_;  // Those that are over are dropped.
  double fixed_ms_, ms_per_token_;
};

}  // namespace baton

#endif  // BATON_PREFILL_WORKER_PULL_POLICY_H_
