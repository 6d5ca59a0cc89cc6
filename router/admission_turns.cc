// SPDX-License-Identifier: Apache-2.0
// Whose turn it is, and when it will be.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/admission.h"
#include "router/status_details.h"

namespace baton {
namespace {

// Parts of a token that turns are counted in, so that weights divide.
constexpr uint64_t kTurnScale = 1024;
// So many grants to those that wait say how fast it goes; a new one counts for so much.
constexpr int kKnownPace = 4;
constexpr double kPaceWeight = 0.1;

}  // namespace

int MaxLandingRecoveries(double share, int slots) { return std::max(1, static_cast<int>(share * slots)); }

void Admission::TakeDecode(const RouteRequest& request, Route* route) {
  Take(route->decode, request.num_tokens);
  if (!request.recovering) return;
  route->recovering = true;
  ++accounts_[route->decode].recovering;
}

void Admission::EndRecovery(const WorkerRef& decode, MonotonicTime now, std::vector<Grant>* grants) {
  const auto account = accounts_.find(decode);
  if (account == accounts_.end() || account->second.recovering == 0) return;
  --account->second.recovering;
  Pump(now, grants);
}

size_t Admission::num_recoveries_waiting() const {
  return static_cast<size_t>(std::distance(queue_.begin(), queue_.lower_bound(QueueKey(1, std::numeric_limits<int>::min(), 0, 0))));
}

uint64_t Admission::BeginOfTurn(const RouteRequest& request) const {
  const auto turns = turns_.find(request.priority);
  if (turns == turns_.end()) return 0;
  const auto next = turns->second.next.find(request.tenant);
  return next == turns->second.next.end() ? turns->second.begun : std::max(turns->second.begun, next->second);
}

uint64_t Admission::TakeTurn(const RouteRequest& request) {
  const uint64_t begin = BeginOfTurn(request);
  turns_[request.priority].next[request.tenant] = begin + static_cast<uint64_t>(std::max<int64_t>(1, request.num_tokens)) * kTurnScale / static_cast<uint64_t>(std::max(1, request.weight));
  return begin;
}

absl::Duration Admission::ComputeRetryAfter() const {
  const absl::Duration pace = num_dispatches_ > 0 ? dispatch_interval_ : absl::Seconds(1);
  return std::clamp(pace * static_cast<double>(num_new_waiting_ + 1), absl::Seconds(1), absl::Seconds(60));
}

absl::Status Admission::CheckDeadline(const RouteRequest& request, MonotonicTime now) const {
  if (request.resumed || request.deadline == absl::InfiniteDuration() || num_dispatches_ < kKnownPace) return absl::OkStatus();
  const auto first = queue_.lower_bound(QueueKey(kNewRank, std::numeric_limits<int>::min(), 0, 0));
  const auto own = queue_.lower_bound(QueueKey(kNewRank, -request.priority, BeginOfTurn(request), next_arrival_));
  const auto before = std::distance(first, own);
  const absl::Duration wait = dispatch_interval_ * static_cast<double>(before + 1), left = request.deadline - now;
  if (wait <= left) return absl::OkStatus();
  const absl::Status late = absl::ResourceExhaustedError(
      absl::StrCat("a worker would be free in ", absl::FormatDuration(absl::Trunc(wait, absl::Milliseconds(1))), " (", before,
                   " requests are before this one), the request can wait for ",
                   absl::FormatDuration(absl::Trunc(std::max(left, absl::ZeroDuration()), absl::Milliseconds(1)))));
  return WithRetryAfter(late, std::clamp(wait - left, absl::Seconds(1), absl::Seconds(60)));
}

void Admission::NoteDispatch(MonotonicTime now) {
  const double weight = std::max(kPaceWeight, 1.0 / ++num_dispatches_);
  dispatch_interval_ = dispatch_interval_ * (1 - weight) + (now - last_dispatch_) * weight;
  last_dispatch_ = now;
}

}  // namespace baton
