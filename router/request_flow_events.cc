// SPDX-License-Identifier: Apache-2.0
// What the workers say, and what it means for a request.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "router/request_flow.h"

namespace baton {
namespace {

// A call ended by a living peer that would not take it, as opposed to a death.
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

// Refusals that will not change: this worker is not asked again for this request.
bool IsPermanent(const absl::Status& status) {
  return IsRefusal(status) && status.code() != absl::StatusCode::kResourceExhausted;
}

// Refusals by a message that are the request's own fault or doing, wherever it goes.
bool EndsRequest(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

absl::Status ErrorStatus(const internal::Error& error) {
  const bool known = error.code() > 0 && error.code() <= 16;
  return absl::Status(known ? static_cast<absl::StatusCode>(error.code()) : absl::StatusCode::kInternal, error.message());
}

absl::Status FromWorker(absl::string_view role, const WorkerRef& worker, const absl::Status& status) {
  return Annotate(status, absl::StrCat(role, " worker ", worker.id));
}

}  // namespace

void RequestFlow::OnDecodeEvent(int stream, internal::DecodeEvent event, MonotonicTime now, FlowActions* actions) {
  auto it = decode_calls_.find(stream);
  if (it == decode_calls_.end()) return;
  const WorkerRef worker = it->second.worker;
  const bool current = IsCurrent(stream);
  switch (event.message_case()) {
    case internal::DecodeEvent::kLanding:
      if (current) OnLanding(event.landing(), now, actions);
      return;
    case internal::DecodeEvent::kLanded:
      if (current) OnLanded(event.landed(), now, actions);
      return;
    case internal::DecodeEvent::kFailed:
      if (!IsCurrentAttempt(stream, event.failed().attempt())) return;
      return OnAttemptFailed(route_.prefill, FromWorker("decode", worker, ErrorStatus(event.failed().error())),
                             /*death=*/false, now, actions);
    case internal::DecodeEvent::kTokens: {
      // The last token ends the call, also on a stream that was left.
      bool last = false;
      for (const auto& token : event.tokens().tokens()) last = last || token.finish_reason() != internal::NOT_FINISHED;
      if (last) CloseDecode(stream, /*refused=*/false, actions);
      if (current) OnTokens(std::move(*event.mutable_tokens()), now, actions);
      return;
    }
    case internal::DecodeEvent::kRefused:
      CloseDecode(stream, /*refused=*/true, actions);
      if (current) OnRefused(worker, ErrorStatus(event.refused()), now, actions);
      return;
    case internal::DecodeEvent::kHistoryFailed:
      // The attempt goes on: prefill computes that part too.
      if (!IsCurrentAttempt(stream, event.history_failed().attempt()) || !prefill_open(stream, attempt_)) return;
      actions->push_back({.kind = FlowAction::Kind::kSendHistoryFailed,
                          .stream = stream,
                          .attempt = attempt_,
                          .status = ErrorStatus(event.history_failed().error())});
      return;
    case internal::DecodeEvent::kStopped:
      CloseDecode(stream, /*refused=*/false, actions);
      if (current) OnRefused(worker, absl::UnavailableError("stopped by the worker"), now, actions);
      return;
    case internal::DecodeEvent::kPromptLogprobs:  // The shell's.
    case internal::DecodeEvent::MESSAGE_NOT_SET:
      return;  // A message of a later wire version.
  }
}

void RequestFlow::OnDecodeEnd(int stream, const absl::Status& status, MonotonicTime now, FlowActions* actions) {
  auto it = decode_calls_.find(stream);
  if (it == decode_calls_.end()) return;
  const WorkerRef worker = it->second.worker;
  const bool current = IsCurrent(stream);
  CloseDecode(stream, /*refused=*/!status.ok() && current, actions);
  if (!current) return;
  if (IsRefusal(status)) return OnRefused(worker, status, now, actions);
  OnDecodeDeath(worker, status.ok() ? absl::UnavailableError("ended its stream without a last message") : status, now,
                actions);
}

void RequestFlow::OnPrefillEvent(int stream, int attempt, const internal::PrefillEvent& event, MonotonicTime now,
                                 FlowActions* actions) {
  auto it = prefill_calls_.find({stream, attempt});
  if (it == prefill_calls_.end()) return;
  const WorkerRef worker = it->second.worker;
  if (event.has_done()) {
    ClosePrefill(stream, attempt, /*refused=*/false, actions);
    if (IsCurrent(stream)) OnPrefillDone(worker, event.done(), attempt, now, actions);
    return;
  }
  if (event.has_history()) {
    // Of an attempt that is not current any more it has a timer of its own, and is being cancelled.
    if (!IsCurrentAttempt(stream, attempt)) return;
    actions->push_back({.kind = FlowAction::Kind::kSendHistory, .stream = stream, .attempt = attempt, .wants = event.history()});
    return;
  }
  if (!event.has_failed()) return;
  const absl::Status status = ErrorStatus(event.failed());
  ClosePrefill(stream, attempt, /*refused=*/status.code() == absl::StatusCode::kResourceExhausted, actions);
  if (finished_ && IsCurrent(stream)) return End(absl::OkStatus(), now, actions);
  if (IsCurrentAttempt(stream, attempt)) {
    OnAttemptFailed(worker, FromWorker("prefill", worker, status), /*death=*/false, now, actions);
  }
}

void RequestFlow::OnPrefillEnd(int stream, int attempt, const absl::Status& status, MonotonicTime now,
                               FlowActions* actions) {
  auto it = prefill_calls_.find({stream, attempt});
  if (it == prefill_calls_.end()) return;
  const WorkerRef worker = it->second.worker;
  const bool current = IsCurrentAttempt(stream, attempt);
  ClosePrefill(stream, attempt, /*refused=*/current, actions);
  if (finished_ && IsCurrent(stream)) return End(absl::OkStatus(), now, actions);
  if (!current) return;
  const absl::Status why =
      status.ok() ? absl::UnavailableError("ended its call without an answer") : status;
  OnAttemptFailed(worker, FromWorker("prefill", worker, why), /*death=*/!IsRefusal(status), now, actions);
}

void RequestFlow::OnLanding(const internal::LandingEvent& landing, MonotonicTime now, FlowActions* actions) {
  if (state_ != State::kLanding || landing.attempt() != attempt_) return;
  if (std::exchange(route_.probe, false)) {  // Not all of the prompt was cached there.
    const bool tail = route_.sibling && num_tokens() - 1 - landing.first_missing_token() <= kMaxTailTokens;
    return tail ? PrefillLocally(route_.reason, now, actions) : SeekPrefill(now, actions);
  }
  if (!reserved_prefill_) {  // It has left meanwhile.
    return OnAttemptFailed({}, absl::UnavailableError("the prefill worker left before it was asked"), /*death=*/false, now,
                           actions);
  }
  if (route_.costs) {
    const Placement placement =
        PlacePrefill(options_.placement, *route_.costs, num_tokens() - 1, landing.first_missing_token());
    if (placement.locally) {
      ReturnReservedPrefill(actions);
      return PrefillLocally(PlacementReasonName(placement.reason), now, actions);
    }
  }
  const WorkerRef worker = std::exchange(reserved_prefill_, WorkerRef());
  prefill_calls_[{stream_, attempt_}] = {.worker = worker, .num_tokens = route_.num_tokens};
  state_ = State::kPrefill;
  deadline_ = now + options_.transfer_timeout;
  if (timed_) phases_.Enter(Phase::kPrefill, now);
  actions->push_back({.kind = FlowAction::Kind::kOpenPrefill,
                      .stream = stream_,
                      .attempt = attempt_,
                      .worker = worker,
                      .landing = landing});
}

// Any attempt's: an older one may have won the race.
void RequestFlow::OnLanded(const internal::LandedEvent& landed, MonotonicTime now, FlowActions* actions) {
  if (state_ != State::kLanding && state_ != State::kPrefill && state_ != State::kRetry) return;
  EndRecovery(stream_, actions);
  ForgetAcquire(actions);
  ReturnReservedPrefill(actions);
  landed_attempt_ = landed.attempt();
  // The call that delivered is about to say Done, with its timings; the others have nothing left to do.
  CancelPrefills(landed_attempt_, now, actions);
  state_ = State::kRunning;
  deadline_ = now + options_.token_timeout;
  landed_at_ = now;
  if (timed_) phases_.Enter(Phase::kFirstStep, now);
  auto it = prefill_calls_.find({stream_, landed_attempt_});
  const bool by_prefill = it != prefill_calls_.end() || !landed.transport().empty();
  summary_.disaggregated = by_prefill;
  if (it != prefill_calls_.end()) {
    summary_.prefill_worker = it->second.worker.id;
  } else if (done_attempt_ == landed_attempt_) {
    summary_.prefill_worker = done_worker_;  // Its call has ended.
  }
  if (!by_prefill) summary_.prefill_worker.clear();
  if (landed_attempt_ == 0 && num_tokens() > 1) summary_.reason = "cached";
  if (!landed.transport().empty()) summary_.transport = landed.transport();
  summary_.kv_bytes += landed.kv_bytes();
  if (!by_prefill) {
    CountCached(landed.cached_tokens());
  } else if (done_attempt_ == landed_attempt_) {
    CountCached(done_cached_tokens_);
  }
}

// What a recovery recomputes is not the client's prompt: the first landing counts.
void RequestFlow::CountCached(int cached_tokens) {
  if (counted_cached_) return;
  counted_cached_ = true;
  summary_.cached_tokens = std::clamp<int>(cached_tokens, 0, static_cast<int>(num_prompt_tokens_));
}

void RequestFlow::OnPrefillDone(const WorkerRef& worker, const internal::PrefillDone& done, int attempt,
                                MonotonicTime now, FlowActions* actions) {
  const absl::Duration tail = absl::Milliseconds(std::max(0.0, done.transfer_tail_ms()));
  const bool landed = state_ == State::kRunning && attempt == landed_attempt_;
  if (!landed && !(state_ == State::kPrefill && attempt == attempt_)) return;
  done_attempt_ = attempt;
  done_worker_ = worker.id;
  done_cached_tokens_ = done.cached_tokens();
  if (!counted_cached_) summary_.history_tokens = std::clamp<int>(done.history_tokens(), 0, static_cast<int>(num_prompt_tokens_));
  if (landed) CountCached(done_cached_tokens_);
  if (summary_.transport.empty()) summary_.transport = done.transport();
  if (timed_ && landed) {
    phases_.Move(Phase::kPrefill, Phase::kTransferExposed, landed_at_ - (now - tail));
  } else if (timed_) {
    phases_.Enter(Phase::kTransferExposed, now);
    phases_.Move(Phase::kPrefill, Phase::kTransferExposed, tail);
  }
  if (finished_) End(absl::OkStatus(), now, actions);
}

void RequestFlow::OnTokens(internal::TokensEvent event, MonotonicTime now, FlowActions* actions) {
  FlowAction emit{.kind = FlowAction::Kind::kEmit};
  bool last = false;
  for (auto& token : *event.mutable_tokens()) {
    // A worker that breaks the order could hand out another request's text: an error is better.
    if (state_ != State::kRunning || last || finished_ || token.index() != static_cast<int>(emitted_.size())) {
      return End(absl::InternalError(absl::StrCat("decode worker ", route_.decode.id, " sent token ", token.index(), " where ",
                                                  emitted_.size(), " is next",
                                                  state_ != State::kRunning ? ", before the prompt had landed" : "")),
                 now, actions);
    }
    emitted_.push_back(token.token_id());
    last = token.finish_reason() != internal::NOT_FINISHED;
    emit.tokens.push_back(std::move(token));
  }
  if (emit.tokens.empty()) return;
  phases_.Enter(Phase::kDecode, now);
  deadline_ = now + options_.token_timeout;
  actions->push_back(std::move(emit));
  if (!last) return;
  finished_ = true;
  if (!prefill_calls_.contains({stream_, landed_attempt_})) return End(absl::OkStatus(), now, actions);
  deadline_ = now + options_.done_timeout;  // The usage needs what PrefillDone says.
}

void RequestFlow::OnRefused(const WorkerRef& worker, const absl::Status& status, MonotonicTime now, FlowActions* actions) {
  if (EndsRequest(status)) return End(FromWorker("decode", worker, status), now, actions);
  // No death: elsewhere, or here again once its load has changed. A landing that took too long had begun: it counts as a
  // stream, and the time it took was not spent waiting for a worker.
  const bool landing_timeout = absl::IsDeadlineExceeded(status);
  if (IsPermanent(status)) {
    dead_.push_back(worker);
  } else if (landing_timeout) {
    // Bounded by max_streams.
  } else if (++refusals_ <= options_.max_refusals) {
    --streams_;
  }
  disliked_ = {worker};
  // A stream that had begun and ends like this moves: the worker drains, or lost its blocks.
  Requeue(FromWorker("decode", worker, status), /*recovery=*/!emitted_.empty() || landing_timeout, now, actions);
}

void RequestFlow::OnDecodeDeath(const WorkerRef& worker, const absl::Status& status, MonotonicTime now,
                                FlowActions* actions) {
  if (!CountDeath(worker, status, now, actions)) return;
  Requeue(FromWorker("decode", worker, status), /*recovery=*/true, now, actions);
}

void RequestFlow::OnAttemptFailed(const WorkerRef& worker, const absl::Status& status, bool death, MonotonicTime now,
                                  FlowActions* actions) {
  if (status.code() == absl::StatusCode::kInvalidArgument) return End(status, now, actions);
  CancelPrefills(-1, now, actions);
  if (death && !CountDeath(worker, status, now, actions)) return;
  if (local_) {  // Nobody else can fill this landing.
    disliked_ = {route_.decode};
    return Requeue(status, /*recovery=*/true, now, actions);
  }
  if (IsPermanent(status)) dead_.push_back(worker);
  if (worker) disliked_ = {worker};
  ++summary_.recoveries;
  actions->push_back({.kind = FlowAction::Kind::kRecovery, .detail = "prefill"});
  if (prefill_attempts_ >= options_.prefill_attempts) return PrefillLocally(kNoPrefillWorker, now, actions);
  SeekPrefill(now, actions);
}

}  // namespace baton
