// SPDX-License-Identifier: Apache-2.0
// States, timers and what is asked of the shell. The workers' messages are in request_flow_events.cc.
#include "router/request_flow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "router/status_details.h"

namespace baton {

RequestFlow::RequestFlow(const FlowOptions& options, int64_t num_tokens, PhaseClock clock)
    : options_(options), num_prompt_tokens_(num_tokens), phases_(clock) {}

void RequestFlow::Begin(MonotonicTime now, FlowActions* actions) {
  phases_.Enter(Phase::kQueued, now);
  timed_ = true;
  deadline_ = queue_deadline_ = now + options_.queue_timeout;
  Acquire(actions);
}

void RequestFlow::BeginBeside(MonotonicTime now, FlowActions* actions) {
  resumed_ = true;
  Begin(now, actions);
}

void RequestFlow::FillRouteRequest(RouteRequest* request) const {
  request->resumed = resumed_;
  request->recovering = !emitted_.empty();
  request->prefill_only = state_ == State::kRetry;
  if (request->prefill_only) request->group = route_.group;
  if (!emitted_.empty()) request->fingerprint = route_.group.model_fingerprint;
  request->avoid = dead_;
  request->dislike = disliked_;
  if (!resumed_) request->deadline = queue_deadline_;
  request->num_tokens = num_tokens();
  request->needs_prefill = num_tokens() > 1;  // The last token is decode's.
}

void RequestFlow::OnRoute(uint64_t ticket, absl::StatusOr<Route> route, MonotonicTime now, FlowActions* actions) {
  if (!acquiring_ || ticket != ticket_) {
    if (!route.ok()) return;
    if (route->recovering) actions->push_back({.kind = FlowAction::Kind::kEndRecovery, .worker = route->decode});
    for (const WorkerRef& worker : {route->decode, route->prefill}) {
      if (worker) actions->push_back({.kind = FlowAction::Kind::kRelease, .worker = worker, .num_tokens = route->num_tokens});
    }
    return;
  }
  acquiring_ = false;
  if (state_ == State::kQueued) {
    if (!route.ok()) return End(route.status(), now, actions);
    StartStream(*route, now, actions);
  } else if (state_ == State::kRetry) {
    if (!route.ok()) return PrefillLocally(kNoPrefillWorker, now, actions);
    StartAttempt(*route, now, actions);
  }
}

void RequestFlow::OnWorkerLost(const WorkerRef& worker, const std::string& reason, MonotonicTime now, FlowActions* actions) {
  OnWorkerLeft(worker, now, actions);
  const absl::Status status = absl::UnavailableError(reason);
  std::vector<int> streams;
  std::vector<PrefillKey> prefills;
  for (const auto& [stream, call] : decode_calls_) {
    if (call.worker == worker) streams.push_back(stream);
  }
  for (const auto& [key, call] : prefill_calls_) {
    if (call.worker == worker) prefills.push_back(key);
  }
  for (int stream : streams) {
    actions->push_back({.kind = FlowAction::Kind::kAbandonDecode, .stream = stream});
    OnDecodeEnd(stream, status, now, actions);
  }
  for (const auto& [stream, attempt] : prefills) {
    actions->push_back({.kind = FlowAction::Kind::kAbandonPrefill, .stream = stream, .attempt = attempt});
    OnPrefillEnd(stream, attempt, status, now, actions);
  }
}

void RequestFlow::OnWorkerLeft(const WorkerRef& worker, MonotonicTime, FlowActions* actions) {
  if (reserved_prefill_ == worker) ReturnReservedPrefill(actions);
}

void RequestFlow::OnTimer(MonotonicTime now, FlowActions* actions) {
  CutLateCalls(now, actions);
  if (state_ == State::kEnded || now < deadline_) return;
  switch (state_) {
    case State::kQueued:
      ForgetAcquire(actions);
      return End(WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat("waited ", absl::FormatDuration(options_.queue_timeout),
                                                                           " for a worker, which is the queue timeout")),
                                absl::Seconds(1)),
                 now, actions);
    case State::kLanding:
      disliked_ = {route_.decode};
      return Requeue(absl::DeadlineExceededError(absl::StrCat("decode worker ", route_.decode.id, " gave no landing within ",
                                                              absl::FormatDuration(options_.landing_timeout))),
                     true, now, actions);
    case State::kPrefill: {
      const absl::Status status = absl::DeadlineExceededError(
          absl::StrCat(local_ ? "local prefill" : "prefill and transfer", " took longer than ",
                       absl::FormatDuration(options_.transfer_timeout), ", which is the transfer timeout"));
      return OnAttemptFailed(route_.prefill, status, false, now, actions);
    }
    case State::kRetry:
      return PrefillLocally(kNoPrefillWorker, now, actions);
    case State::kRunning:
      if (finished_) return End(absl::OkStatus(), now, actions);
      disliked_ = {route_.decode};
      return Requeue(absl::DeadlineExceededError(absl::StrCat("decode worker ", route_.decode.id, " sent no token for ",
                                                              absl::FormatDuration(options_.token_timeout))),
                     true, now, actions);
    case State::kEnded:
      return;
  }
}

void RequestFlow::OnClientEnd(const absl::Status& status, MonotonicTime now, FlowActions* actions) {
  if (state_ == State::kEnded) return;
  End(status, now, actions);
}

void RequestFlow::ExtendQueue(MonotonicTime deadline) {
  if (state_ != State::kQueued || deadline <= deadline_) return;
  deadline_ = queue_deadline_ = deadline;
}

MonotonicTime RequestFlow::NextDeadline() const {
  MonotonicTime next = deadline_;
  for (const auto& [stream, call] : decode_calls_) next = std::min(next, call.cut_at);
  for (const auto& [key, call] : prefill_calls_) next = std::min(next, call.cut_at);
  return next;
}

void RequestFlow::Acquire(FlowActions* actions) {
  acquiring_ = true;
  actions->push_back({.kind = FlowAction::Kind::kAcquire, .ticket = ++ticket_});
}

void RequestFlow::ForgetAcquire(FlowActions* actions) {
  if (!acquiring_) return;
  acquiring_ = false;
  actions->push_back({.kind = FlowAction::Kind::kForgetAcquire, .ticket = ticket_});
}

void RequestFlow::StartStream(const Route& route, MonotonicTime now, FlowActions* actions) {
  route_ = route;
  resumed_ = true;
  timed_ = emitted_.empty();
  left_ = false;
  landed_attempt_ = done_attempt_ = -1;
  attempt_ = 1;
  ++stream_;
  ++streams_;
  ++summary_.attempts;
  local_ = !route.prefill && !route.probe;
  prefill_attempts_ = route.prefill ? 1 : 0;
  reserved_prefill_ = route.prefill;
  decode_calls_[stream_] = {.worker = route.decode, .num_tokens = route.num_tokens, .recovering = route.recovering};
  summary_.decode_worker = route.decode.id;
  summary_.reason = route.reason;
  actions->push_back({.kind = FlowAction::Kind::kOpenDecode, .stream = stream_, .worker = route.decode, .prefill_locally = local_});
  state_ = local_ ? State::kPrefill : State::kLanding;
  deadline_ = now + (local_ ? options_.transfer_timeout : options_.landing_timeout);
  if (timed_) phases_.Enter(local_ ? Phase::kPrefill : Phase::kLanding, now);
}

void RequestFlow::StartAttempt(const Route& route, MonotonicTime now, FlowActions* actions) {
  route_.prefill = route.prefill;
  reserved_prefill_ = route.prefill;
  local_ = false;
  ++attempt_;
  ++prefill_attempts_;
  ++summary_.attempts;
  route_.num_tokens = route.num_tokens;
  actions->push_back({.kind = FlowAction::Kind::kSendAttempt, .stream = stream_, .attempt = attempt_});
  state_ = State::kLanding;
  deadline_ = now + options_.landing_timeout;
  if (timed_) phases_.Enter(Phase::kLanding, now);
}

// A landing is there and lacks a prefill worker.
void RequestFlow::SeekPrefill(MonotonicTime now, FlowActions* actions) {
  state_ = State::kRetry;
  deadline_ = now + options_.credit_timeout;
  if (timed_) phases_.Enter(Phase::kQueued, now);
  Acquire(actions);
}

void RequestFlow::PrefillLocally(absl::string_view reason, MonotonicTime now, FlowActions* actions) {
  ForgetAcquire(actions);
  route_.prefill = {};
  local_ = true;
  ++attempt_;
  ++summary_.attempts;
  summary_.reason = std::string(reason);
  actions->push_back({.kind = FlowAction::Kind::kSendPrefillLocally, .stream = stream_, .attempt = attempt_});
  state_ = State::kPrefill;
  deadline_ = now + options_.transfer_timeout;
  if (timed_) phases_.Enter(Phase::kPrefill, now);
}

void RequestFlow::Requeue(const absl::Status& why, bool recovery, MonotonicTime now, FlowActions* actions) {
  Leave(now, actions);
  ForgetAcquire(actions);
  if (streams_ >= options_.max_streams) {
    return End(Annotate(why, absl::StrCat("given up after ", streams_, " decode streams")), now, actions);
  }
  if (recovery) {
    ++summary_.recoveries;
    queue_deadline_ = now + options_.queue_timeout;
    actions->push_back({.kind = FlowAction::Kind::kRecovery, .detail = "decode"});
  }
  state_ = State::kQueued;
  deadline_ = queue_deadline_;
  if (emitted_.empty()) phases_.Enter(Phase::kQueued, now);
  Acquire(actions);
}

bool RequestFlow::CountDeath(const WorkerRef& worker, const absl::Status& why, MonotonicTime now, FlowActions* actions) {
  dead_.push_back(worker);
  if (++deaths_ < options_.max_deaths) return true;
  End(absl::InternalError(absl::StrCat("request was in flight when ", deaths_, " workers died (last: ", worker.id, ": ",
                                       why.message(), "); it is not tried again")),
      now, actions);
  return false;
}

void RequestFlow::End(const absl::Status& status, MonotonicTime now, FlowActions* actions) {
  Leave(now, actions);
  ForgetAcquire(actions);
  state_ = State::kEnded;
  deadline_ = absl::InfiniteDuration();
  phases_.Stop(now);
  actions->push_back({.kind = FlowAction::Kind::kEnd, .status = status});
}

void RequestFlow::Leave(MonotonicTime now, FlowActions* actions) {
  CancelPrefills(-1, now, actions);
  ReturnReservedPrefill(actions);
  if (left_) return;
  left_ = true;
  auto it = decode_calls_.find(stream_);
  if (it == decode_calls_.end()) return;
  it->second.cut_at = now + options_.stop_timeout;
  actions->push_back({.kind = FlowAction::Kind::kSendStop, .stream = stream_});
}

void RequestFlow::CancelPrefills(int except_attempt, MonotonicTime now, FlowActions* actions) {
  for (auto& [key, call] : prefill_calls_) {
    if (call.cancelled || key == PrefillKey(stream_, except_attempt)) continue;
    call.cancelled = true;
    call.cut_at = now + options_.stop_timeout;
    actions->push_back({.kind = FlowAction::Kind::kCancelPrefill, .stream = key.first, .attempt = key.second});
  }
}

void RequestFlow::ReturnReservedPrefill(FlowActions* actions) {
  if (!reserved_prefill_) return;
  actions->push_back({.kind = FlowAction::Kind::kRelease, .worker = reserved_prefill_, .num_tokens = route_.num_tokens});
  reserved_prefill_ = {};
}

void RequestFlow::EndRecovery(int stream, FlowActions* actions) {
  auto it = decode_calls_.find(stream);
  if (it == decode_calls_.end() || !std::exchange(it->second.recovering, false)) return;
  actions->push_back({.kind = FlowAction::Kind::kEndRecovery, .worker = it->second.worker});
}

void RequestFlow::CloseDecode(int stream, bool refused, FlowActions* actions) {
  EndRecovery(stream, actions);
  auto it = decode_calls_.find(stream);
  if (it == decode_calls_.end()) return;
  actions->push_back({.kind = FlowAction::Kind::kRelease,
                      .worker = it->second.worker,
                      .num_tokens = it->second.num_tokens,
                      .refused = refused});
  decode_calls_.erase(it);
}

void RequestFlow::ClosePrefill(int stream, int attempt, bool refused, FlowActions* actions) {
  auto it = prefill_calls_.find({stream, attempt});
  if (it == prefill_calls_.end()) return;
  actions->push_back({.kind = FlowAction::Kind::kRelease,
                      .worker = it->second.worker,
                      .num_tokens = it->second.num_tokens,
                      .refused = refused});
  prefill_calls_.erase(it);
}

// Calls that were left and whose worker does not answer: the connection is cut, which is an end like any other.
void RequestFlow::CutLateCalls(MonotonicTime now, FlowActions* actions) {
  std::vector<int> streams;
  std::vector<PrefillKey> prefills;
  for (const auto& [stream, call] : decode_calls_) {
    if (call.cut_at <= now) streams.push_back(stream);
  }
  for (const auto& [key, call] : prefill_calls_) {
    if (call.cut_at <= now) prefills.push_back(key);
  }
  for (int stream : streams) {
    actions->push_back({.kind = FlowAction::Kind::kAbandonDecode, .stream = stream});
    CloseDecode(stream, /*refused=*/true, actions);
  }
  for (const auto& [stream, attempt] : prefills) {
    actions->push_back({.kind = FlowAction::Kind::kAbandonPrefill, .stream = stream, .attempt = attempt});
    ClosePrefill(stream, attempt, /*refused=*/true, actions);
  }
}

}  // namespace baton
