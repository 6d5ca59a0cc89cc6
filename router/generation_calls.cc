// SPDX-License-Identifier: Apache-2.0
// Doing what RequestFlow asks for: credits, calls to workers, deltas to the client, the timer.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "router/generation.h"
#include "router/status_details.h"

namespace baton {
namespace {

void SetTransfer(uint64_t incarnation, uint64_t stream, internal::TransferId* transfer) {
  transfer->set_router_incarnation(incarnation);
  transfer->set_stream(stream);
}

}  // namespace

void Generation::Drive(Choice& choice, absl::FunctionRef<void(RequestFlow&, MonotonicTime, FlowActions*)> event) {
  const MonotonicTime now = Clock::Real()->Now();
  FlowActions actions;
  event(choice.flow, now, &actions);
  for (size_t i = 0; i < actions.size(); ++i) Apply(choice, std::move(actions[i]), now, &actions);
  ArmTimer();
}

void Generation::Apply(Choice& choice, FlowAction action, MonotonicTime now, FlowActions* actions) {
  switch (action.kind) {
    case FlowAction::Kind::kAcquire:
      return Acquire(choice, action.ticket);
    case FlowAction::Kind::kForgetAcquire:
      if (auto it = choice.tickets.find(action.ticket); it != choice.tickets.end()) {
        core_->dispatcher.Forget(it->second);
        choice.tickets.erase(it);
      }
      return;
    case FlowAction::Kind::kOpenDecode:
      return OpenDecode(choice, action);
    case FlowAction::Kind::kSendAttempt:
    case FlowAction::Kind::kSendPrefillLocally:
    case FlowAction::Kind::kSendHistory:
    case FlowAction::Kind::kSendStop:
      return SendToDecode(choice, action);
    case FlowAction::Kind::kOpenPrefill:
      return OpenPrefill(choice, action);
    case FlowAction::Kind::kCancelPrefill:
    case FlowAction::Kind::kSendHistoryFailed:
      return SendToPrefill(choice, action);
    case FlowAction::Kind::kAbandonDecode:
      if (auto it = choice.decode.find(action.stream); it != choice.decode.end()) it->second->Cancel();
      return;
    case FlowAction::Kind::kAbandonPrefill:
      if (auto it = choice.prefill.find({action.stream, action.attempt}); it != choice.prefill.end()) it->second->Cancel();
      return;
    case FlowAction::Kind::kRelease:
      return core_->dispatcher.Release(action.worker, action.num_tokens, action.refused);
    case FlowAction::Kind::kEndRecovery:
      return core_->dispatcher.EndRecovery(action.worker);
    case FlowAction::Kind::kEmit:
      return Emit(choice, std::move(action), now, actions);
    case FlowAction::Kind::kRecovery:
      trace_.Recovery(action.detail, choice.index, now);
      return core_->metrics.CountRecovery(action.detail);
    case FlowAction::Kind::kEnd:
      return OnChoiceEnd(choice, action.status, now);
  }
}

void Generation::Acquire(Choice& choice, uint64_t ticket) {
  RouteRequest request{.priority = request_.priority(), .tenant = key_name_, .weight = key_weight_};
  choice.flow.FillRouteRequest(&request);
  request.deadline = std::min(request.deadline, deadline_);
  request.total_tokens = static_cast<int64_t>(prepared_.tokens.size()) + prepared_.sampling.max_tokens();
  request.prefixes = prefixes_;
  if (choice.sibling.decode) request.fingerprint = choice.sibling.group.model_fingerprint;
  if (choice.sibling.decode && choice.flow.emitted().empty()) {
    request.sibling_at = choice.sibling.decode;
  } else if (wants_prompt_logprobs()) {
    request.needs_prefill = false;
    request.local_reason = "prompt log-probabilities";
  } else if (prompt_key_ && choice.flow.emitted().empty()) {
    request.cached_on = core_->landed_prompts.Find(*prompt_key_);
  }
  auto self = shared_from_this();
  choice.tickets[ticket] = core_->dispatcher.Acquire(std::move(request), [self, &choice, ticket](absl::StatusOr<Route> route) {
    self->strand_.Post([self, &choice, ticket, route = std::move(route)]() mutable {
      choice.tickets.erase(ticket);
      self->Drive(choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
        flow.OnRoute(ticket, std::move(route), now, actions);
      });
    });
  });
}

void Generation::OnDecodeMessage(Choice& choice, int stream, internal::DecodeEvent event) {
  if (event.has_prompt_logprobs()) return OnPromptLogprobs(event.prompt_logprobs());
  const auto refuse = [&](const char* what) {
    internal::Error* const refused = event.mutable_refused();
    refused->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
    refused->set_message(absl::StrCat("worker ", choice.flow.route().decode.id, " is of a version without ", what));
  };
  if (event.has_landed() && prepared_.format.has_value() && !event.landed().knows_formats()) {
    refuse("response_format");
  } else if (event.has_landed() && wants_prompt_logprobs() && !event.landed().knows_prompt_logprobs()) {
    refuse("log-probabilities of prompts");
  }
  if (event.has_landed() && prompt_key_) core_->landed_prompts.Note(*prompt_key_, choice.flow.route().decode);
  Drive(choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
    flow.OnDecodeEvent(stream, std::move(event), now, actions);
  });
  if (choice.index == 0 && choice.flow.state() == RequestFlow::State::kRunning) BeginSiblings();
  // After its last message the worker is let go; the call's own end then follows.
  auto it = choice.decode.find(stream);
  if (it != choice.decode.end() && !choice.flow.decode_open(stream)) it->second->CloseSending();
}

void Generation::OnPromptLogprobs(const internal::PromptLogprobs& event) {
  const int known = static_cast<int>(prompt_logprobs_.size()) + 1;
  // A stream that was lost may have brought the first ones; a gap is found at the first token.
  if (event.first() > known) return;
  for (int i = known - event.first(); i < event.tokens_size(); ++i) prompt_logprobs_.push_back(event.tokens(i));
}

bool Generation::AddPromptLogprobs(v1::GenerateResponse* response, MonotonicTime now) {
  const std::vector<int32_t>& tokens = prepared_.tokens;
  bool right = prompt_logprobs_.size() + 1 == tokens.size();
  for (size_t i = 0; right && i < prompt_logprobs_.size(); ++i) right = prompt_logprobs_[i].token_id() == tokens[i + 1];
  if (!right) {
    End(absl::InternalError(absl::StrCat("log-probabilities of ", prompt_logprobs_.size(), " prompt tokens came, not of ", tokens.size() - 1)), now);
    return false;
  }
  const Tokenizer& tokenizer = *core_->model.tokenizer;
  for (size_t i = 0; i < tokens.size(); ++i) {
    v1::PositionLogprobs* const position = response->add_prompt_logprobs();
    position->set_token_id(tokens[i]);
    position->set_token_bytes(std::string(tokenizer.TokenBytes(tokens[i])));
    if (i == 0) continue;
    position->set_logprob(prompt_logprobs_[i - 1].logprob());
    for (const internal::TokenLogprobEntry& entry : prompt_logprobs_[i - 1].top()) {
      v1::TokenLogprob* const top = position->add_top();
      top->set_token_id(entry.token_id());
      top->set_logprob(entry.logprob());
      top->set_token_bytes(std::string(tokenizer.TokenBytes(entry.token_id())));
    }
  }
  prompt_logprobs_.clear();
  return true;
}

void Generation::OpenDecode(Choice& choice, const FlowAction& action) {
  SetRunning();
  const int stream = action.stream;
  const uint64_t transfer = core_->next_transfer++;
  choice.transfers[stream] = transfer;
  auto self = shared_from_this();
  const auto trace = trace_.BeginCall({.name = "call.decode", .choice = choice.index, .stream = stream, .worker = action.worker.id});
  auto on_message = [self, &choice, stream, trace](internal::DecodeEvent&& event) {
    self->strand_.Post([self, &choice, stream, trace, event = std::move(event)]() mutable {
      if (trace != nullptr && event.has_refused()) trace->Note(FromErrorProto(event.refused()));
      self->OnDecodeMessage(choice, stream, std::move(event));
    });
  };
  auto on_done = [self, &choice, stream, trace](absl::Status status) {
    self->strand_.Post([self, &choice, stream, trace, status = std::move(status)] {
      if (trace != nullptr) trace->End(status);
      choice.decode.erase(stream);
      self->Drive(choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
        flow.OnDecodeEnd(stream, status, now, actions);
      });
    });
  };
  auto call = core_->clients.OpenDecode(action.worker, trace_.ContextOf(trace), {.on_message = on_message, .on_done = on_done});
  if (call == nullptr) return on_done(absl::UnavailableError(absl::StrCat("worker ", action.worker.id, " has left")));
  choice.decode[stream] = call;
  internal::DecodeRequest request;
  internal::DecodeStart* start = request.mutable_start();
  SetTransfer(core_->incarnation, transfer, start->mutable_transfer());
  start->mutable_tokens()->Add(prepared_.tokens.begin(), prepared_.tokens.end());
  start->mutable_tokens()->Add(choice.flow.emitted().begin(), choice.flow.emitted().end());
  start->set_num_prompt_tokens(static_cast<int32_t>(prepared_.tokens.size()));
  *start->mutable_sampling() = prepared_.sampling;
  if (prepared_.format.has_value()) *start->mutable_format() = *prepared_.format;
  if (wants_prompt_logprobs()) start->set_prompt_logprobs(request_.prompt_logprobs() + 1);
  start->set_model_fingerprint(choice.flow.route().group.model_fingerprint);
  start->set_cache_salt(request_.cache_salt());
  start->set_priority(request_.priority());
  start->set_num_choices(1);
  start->set_first_choice(choice.index);
  start->set_prefill_locally(action.prefill_locally);
  start->set_request_id(id_);
  call->SendLast(std::move(request));  // What may run at once bounds them.
}

void Generation::OpenPrefill(Choice& choice, const FlowAction& action) {
  const std::pair<int, int> key(action.stream, action.attempt);
  auto self = shared_from_this();
  const auto trace = trace_.BeginCall(
      {.name = "call.prefill", .choice = choice.index, .stream = action.stream, .attempt = action.attempt, .worker = action.worker.id});
  auto on_message = [self, &choice, key, trace](internal::PrefillEvent&& event) {
    self->strand_.Post([self, &choice, key, trace, event = std::move(event)] {
      if (trace != nullptr && event.has_failed()) trace->Note(FromErrorProto(event.failed()));
      self->Drive(choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
        flow.OnPrefillEvent(key.first, key.second, event, now, actions);
      });
      auto it = choice.prefill.find(key);
      if (it != choice.prefill.end() && !choice.flow.prefill_open(key.first, key.second)) it->second->CloseSending();
    });
  };
  auto on_done = [self, &choice, key, trace](absl::Status status) {
    self->strand_.Post([self, &choice, key, trace, status = std::move(status)] {
      if (trace != nullptr) trace->End(status);
      choice.prefill.erase(key);
      self->Drive(choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
        flow.OnPrefillEnd(key.first, key.second, status, now, actions);
      });
    });
  };
  auto call = core_->clients.OpenPrefill(action.worker, trace_.ContextOf(trace), {.on_message = on_message, .on_done = on_done});
  if (call == nullptr) return on_done(absl::UnavailableError(absl::StrCat("worker ", action.worker.id, " has left")));
  choice.prefill[key] = call;
  internal::PrefillRequest request;
  internal::PrefillStart* start = request.mutable_start();
  SetTransfer(core_->incarnation, choice.transfers[action.stream], start->mutable_transfer());
  start->set_attempt(action.attempt);
  start->mutable_tokens()->Add(prepared_.tokens.begin(), prepared_.tokens.end());
  start->mutable_tokens()->Add(choice.flow.emitted().begin(), choice.flow.emitted().end());
  start->set_first_missing_token(action.landing.first_missing_token());
  start->set_kv_address(action.landing.kv_address());
  start->set_decode_incarnation(action.landing.incarnation());
  start->set_decode_worker(choice.flow.route().decode.id);
  start->set_model_fingerprint(choice.flow.route().group.model_fingerprint);
  start->set_cache_salt(request_.cache_salt());
  // A client that reads already waits for nothing that has not begun.
  start->set_priority(choice.flow.emitted().empty() ? request_.priority() : kMaxPriority);
  *start->mutable_transports() = action.landing.transports();
  *start->mutable_kv_endpoints() = action.landing.kv_endpoints();
  start->set_sends_history(action.landing.sends_history());
  start->set_write_token(action.landing.write_token());
  start->set_request_id(id_);
  call->Send(std::move(request));
}

void Generation::SendToDecode(Choice& choice, const FlowAction& action) {
  auto it = choice.decode.find(action.stream);
  if (it == choice.decode.end()) return;  // Its end is on its way to the flow.
  internal::DecodeRequest request;
  if (action.kind == FlowAction::Kind::kSendStop) {
    request.mutable_stop();
  } else if (action.kind == FlowAction::Kind::kSendAttempt) {
    request.mutable_attempt()->set_attempt(action.attempt);
  } else if (action.kind == FlowAction::Kind::kSendHistory) {
    internal::SendHistory* const send = request.mutable_send_history();
    send->set_attempt(action.attempt);
    send->set_first_token(action.wants.first_token());
    send->set_num_tokens(action.wants.num_tokens());
    send->set_worker(action.wants.worker());
    send->set_incarnation(action.wants.incarnation());
    *send->mutable_kv_endpoints() = action.wants.kv_endpoints();
    send->set_write_token(action.wants.write_token());
  } else {
    request.mutable_prefill_locally()->set_attempt(action.attempt);
  }
  it->second->SendLast(std::move(request));
}

void Generation::SendToPrefill(Choice& choice, const FlowAction& action) {
  auto it = choice.prefill.find({action.stream, action.attempt});
  if (it == choice.prefill.end()) return;
  internal::PrefillRequest request;
  if (action.kind == FlowAction::Kind::kCancelPrefill) {
    request.mutable_cancel();
  } else {
    *request.mutable_history_failed() = ToErrorProto(action.status);
  }
  it->second->SendLast(std::move(request));
}

void Generation::Emit(Choice& choice, FlowAction action, MonotonicTime now, FlowActions* actions) {
  if (ended_ || choice.text.finished()) return;
  RouterMetrics& metrics = core_->metrics;
  v1::GenerateResponse response = NewResponse();
  if (wants_prompt_logprobs() && !AddPromptLogprobs(&response, now)) return;
  if (!std::exchange(first_token_seen_, true)) {
    metrics.time_to_first_token->Observe(absl::ToDoubleSeconds(now - arrived_));
    response.set_request_id(request_.request_id());
  }
  if (choice.last_token > absl::ZeroDuration()) {
    metrics.inter_token_latency->Observe(absl::ToDoubleSeconds(now - choice.last_token));
  }
  choice.last_token = now;
  last_progress_ = now;
  const int before = choice.text.num_tokens();
  const bool no_tokens = request_.has_max_tokens() && request_.max_tokens() == 0;  // The worker was asked for one.
  const bool finished = no_tokens ? choice.text.FinishEmpty(response.add_deltas()) : choice.text.Push(action.tokens, response.add_deltas());
  metrics.completion_tokens->Increment(static_cast<uint64_t>(choice.text.num_tokens() - before));
  if (key_use_ != nullptr) key_use_->account().TakeCompletion(choice.text.num_tokens() - before);
  sink_.on_response(std::move(response));
  // The worker does not know of stop strings: the flow leaves it.
  if (finished && choice.text.stopped_by_text()) choice.flow.OnClientEnd(absl::OkStatus(), now, actions);
}

void Generation::SetRunning() {
  if (running_ || ended_) return;
  running_ = true;
  core_->metrics.queue_seconds->Observe(absl::ToDoubleSeconds(Clock::Real()->Now() - arrived_));
  core_->metrics.waiting->Add(-1);
  core_->metrics.running->Add(1);
}

// Where prompts are tokenised there is as much to do as the queue timeout allows to wait.
void Generation::EndUnprepared() {
  const absl::Duration waited = core_->options.flow.queue_timeout;
  if (Clock::Real()->Now() < arrived_ + waited) return;
  End(WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat("waited ", absl::FormatDuration(waited),
                                                               " for the prompt to be tokenised, which is the queue timeout")),
                     absl::Seconds(1)),
      Clock::Real()->Now());
}

// One timer for all choices, set again only when it would come too late: tokens move deadlines thousands of times.
void Generation::ArmTimer() {
  MonotonicTime next = absl::InfiniteDuration();
  for (const auto& choice : choices_) next = std::min(next, choice->flow.NextDeadline());
  if (preparing_ != 0 && !ended_) next = arrived_ + core_->options.flow.queue_timeout;
  if (next >= armed_for_) return;
  if (timer_ != 0) core_->timers.Cancel(timer_);
  armed_for_ = next;
  std::weak_ptr<Generation> weak = weak_from_this();
  timer_ = core_->timers.Schedule(next, [weak] {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->strand_.Post([self] {
      self->timer_ = 0;
      self->armed_for_ = absl::InfiniteDuration();
      if (self->preparing_ != 0) self->EndUnprepared();
      for (auto& choice : self->choices_) {
        self->Drive(*choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
          // Of many choices the last may wait long for the first: as long as those get on, it is in no queue but their own.
          if (self->last_progress_) flow.ExtendQueue(*self->last_progress_ + self->core_->options.flow.queue_timeout);
          flow.OnTimer(now, actions);
        });
      }
      self->ArmTimer();
    });
  });
}

}  // namespace baton
