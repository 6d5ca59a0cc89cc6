// SPDX-License-Identifier: Apache-2.0
// A request's beginning and end; generation_calls.cc has what happens between.
#include "router/generation.h"

#include <utility>

#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "router/request_log.h"

namespace baton {

std::shared_ptr<Generation> Generation::Start(RouterCore* core, v1::GenerateRequest request, Sink sink, Origin origin) {
  auto generation = std::shared_ptr<Generation>(
      new Generation(core, std::move(request), std::move(sink), origin));
  core->Add(generation);
  core->metrics.waiting->Add(1);
  generation->strand_.Post([generation, held = std::move(origin.held)] { generation->Begin(held); });
  return generation;
}

Generation::Generation(RouterCore* core, v1::GenerateRequest request, Sink sink, const Origin& origin)
    : core_(core),
      request_(std::move(request)),
      is_chat_(request_.has_chat()),
      id_(NewRequestId()),
      key_name_(origin.key_name),
      key_use_(origin.key_use),
      arrived_(Clock::Real()->Now()),
      deadline_(origin.deadline),
      sink_(std::move(sink)),
      trace_(core->tracer.get(), origin.trace),
      phases_(Phase::kTokenise, arrived_),
      prepared_{.stops = *StopStringMatcher::Create({})} {
  if (trace_.on()) phases_.KeepIntervals();
}

Generation::~Generation() {
  if (timer_ != 0) core_->timers.Cancel(timer_);
  core_->Remove(this);
}

void Generation::Begin(PreparationPool::Held held) {
  const MonotonicTime now = Clock::Real()->Now();
  if (absl::Status status = core_->ModelStatus(); !status.ok()) return End(status, now);
  if (absl::Status status = CheckRequest(request_, core_->model); !status.ok()) return End(status, now);
  if (absl::Status status = ApplyKey(); !status.ok()) return End(status, now);
  if (absl::Status status = core_->Ready(); !status.ok()) return End(status, now);
  const absl::StatusOr<ModelLimits> limits = core_->Limits();
  if (!limits.ok()) return End(limits.status(), now);
  if (absl::Status status = CheckPromptLength(request_, core_->model, *limits); !status.ok()) return End(status, now);
  if (!IsSlowToPrepare(request_)) return Prepare(*limits);
  if (absl::Status status = PrepareLater(*limits, std::move(held)); !status.ok()) return End(status, now);
  ArmTimer();
}

// What the line of its key says of it.
absl::Status Generation::ApplyKey() {
  if (key_use_ == nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const int priority, key_use_->account().Priority(request_.priority()));
  request_.set_priority(priority);
  key_weight_ = key_use_->account().limits().weight;
  return absl::OkStatus();
}

// The budget is held by the task: it is given back when the prompt is tokens, or will never be.
absl::Status Generation::PrepareLater(const ModelLimits& limits, PreparationPool::Held held) {
  const int64_t bytes = static_cast<int64_t>(request_.ByteSizeLong());
  if (held == nullptr) {
    BATON_ASSIGN_OR_RETURN(held, core_->preparation.Reserve(bytes));
  }
  auto task = [self = shared_from_this(), limits, held = std::move(held)] { self->Prepare(limits); };
  BATON_ASSIGN_OR_RETURN(preparing_, core_->preparation.Post(bytes, std::move(task)));
  return absl::OkStatus();
}

void Generation::Prepare(const ModelLimits& limits) {
  auto self = shared_from_this();
  absl::StatusOr<PreparedRequest> prepared = PrepareRequest(request_, core_->model, limits);
  std::shared_ptr<const PromptPrefixes> prefixes = prepared.ok() ? NamePromptPrefixes(prepared->tokens) : nullptr;
  strand_.Post([self, prepared = std::move(prepared), prefixes = std::move(prefixes)]() mutable {
    self->OnPrepared(std::move(prepared), std::move(prefixes));
  });
}

// In the caches of the model that serves now: while another one is brought in beside it, that one's hits are not seen.
std::shared_ptr<const PromptPrefixes> Generation::NamePromptPrefixes(const std::vector<int32_t>& tokens) const {
  if (core_->options.policy != "prefix_aware") return nullptr;
  const auto view = core_->registry.View();
  const WorkerInfo* model = view->Representative();
  if (model == nullptr || tokens.size() < static_cast<size_t>(kTokensPerUnit)) return nullptr;
  return std::make_shared<const PromptPrefixes>(NamePrefixes(model->identity.model_fingerprint(), request_.cache_salt(), tokens));
}

void Generation::OnPrepared(absl::StatusOr<PreparedRequest> prepared, std::shared_ptr<const PromptPrefixes> prefixes) {
  preparing_ = 0;
  prefixes_ = std::move(prefixes);
  request_.clear_prompt();  // Megabytes, perhaps; what follows needs the tokens only.
  if (ended_) return;
  const MonotonicTime now = Clock::Real()->Now();
  if (!prepared.ok()) return End(prepared.status(), now);
  prepared_ = *std::move(prepared);
  phases_.Enter(Phase::kQueued, now);
  const int64_t num_tokens = static_cast<int64_t>(prepared_.tokens.size());
  if (key_use_ != nullptr) {
    if (absl::Status status = key_use_->account().TakePrompt(num_tokens); !status.ok()) return End(status, now);
  }
  prompt_key_ = LandedPrompts::KeyOf(prepared_.tokens, request_.cache_salt());
  open_choices_ = prepared_.num_choices;
  Drive(AddChoice(phases_), [](RequestFlow& flow, MonotonicTime time, FlowActions* actions) { flow.Begin(time, actions); });
}

Generation::Choice& Generation::AddChoice(const PhaseClock& phases) {
  const int index = static_cast<int>(choices_.size());
  choices_.push_back(std::make_unique<Choice>(
      index, RequestFlow(core_->options.flow, static_cast<int64_t>(prepared_.tokens.size()), phases),
      ChoiceText(core_->model.tokenizer.get(), request_.skip_special_tokens_off(), request_.has_logprobs(), prepared_.stops, index)));
  return *choices_.back();
}

void Generation::BeginSiblings() {
  const Choice& first = *choices_.front();
  const PhaseClock phases = first.flow.phases();
  const Route route = first.flow.route();
  while (!ended_ && static_cast<int>(choices_.size()) < prepared_.num_choices) {
    Choice& sibling = AddChoice(phases);
    sibling.sibling = route;
    Drive(sibling, [](RequestFlow& flow, MonotonicTime time, FlowActions* actions) { flow.BeginBeside(time, actions); });
  }
}

const RequestFlow::Summary& Generation::SummaryOf(const Choice& choice) const {
  const RequestFlow::Summary& own = choice.flow.summary();
  return choice.sibling.decode && own.recoveries == 0 && own.prefill_worker.empty() ? choices_.front()->flow.summary() : own;
}

void Generation::Cancel(const absl::Status& why) {
  auto self = shared_from_this();
  strand_.Post([self, why] {
    if (!self->ended_) self->End(why, Clock::Real()->Now());
  });
}

void Generation::NoteWorkerLost(const WorkerRef& worker, const std::string& reason) {
  auto self = shared_from_this();
  strand_.Post([self, worker, reason] {
    for (auto& choice : self->choices_) {
      self->Drive(*choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
        flow.OnWorkerLost(worker, reason, now, actions);
      });
    }
  });
}

void Generation::NoteWorkerLeft(const WorkerRef& worker) {
  auto self = shared_from_this();
  strand_.Post([self, worker] {
    for (auto& choice : self->choices_) {
      self->Drive(*choice, [&](RequestFlow& flow, MonotonicTime now, FlowActions* actions) {
        flow.OnWorkerLeft(worker, now, actions);
      });
    }
  });
}

void Generation::OnChoiceEnd(Choice& choice, const absl::Status& status, MonotonicTime now) {
  --open_choices_;
  if (ended_) return;
  if (!status.ok()) return End(status, now);
  if (open_choices_ > 0) return;
  End(status, now, FinalResponse(choice));
}

// The client's answer is complete. What is still open at the workers is told to stop, and read to its end.
void Generation::End(const absl::Status& status, MonotonicTime now, std::optional<v1::GenerateResponse> last) {
  if (std::exchange(ended_, true)) return;
  if (const auto use = std::exchange(key_use_, nullptr)) use->EndOne();
  if (preparing_ != 0) core_->preparation.Cancel(preparing_);
  (running_ ? core_->metrics.running : core_->metrics.waiting)->Add(-1);
  // It has waited in vain; what was wrong from the start has not waited.
  if (!running_ && !choices_.empty()) core_->metrics.queue_seconds->Observe(absl::ToDoubleSeconds(now - arrived_));
  core_->metrics.request_seconds->Observe(absl::ToDoubleSeconds(now - arrived_));
  core_->metrics.CountFinished(status.ok() ? choices_.front()->text.finish_reason() : CodeName(status.code()));
  for (auto& choice : choices_) {
    Drive(*choice, [&](RequestFlow& flow, MonotonicTime time, FlowActions* actions) {
      flow.OnClientEnd(status.ok() ? absl::CancelledError("request has ended") : status, time, actions);
    });
  }
  phases_.Stop(now);
  const RequestOutcome outcome = Outcome(status);
  LogRequest(outcome);
  trace_.End(outcome);
  Sink sink = std::move(sink_);
  sink_ = {};
  core_->NoteEnded();
  if (sink.on_end) sink.on_end(status, std::move(last));
}

v1::GenerateResponse Generation::NewResponse() const {
  v1::GenerateResponse response;
  response.set_id(id_);
  response.set_model(core_->model.name);
  return response;
}

v1::GenerateResponse Generation::FinalResponse(const Choice& last) const {
  v1::GenerateResponse response = NewResponse();
  response.set_request_id(request_.request_id());
  int completion_tokens = 0;
  for (const auto& choice : choices_) completion_tokens += choice->text.num_tokens();
  const int cached_tokens = choices_.front()->flow.summary().cached_tokens;
  response.mutable_usage()->set_prompt_tokens(static_cast<int32_t>(prepared_.tokens.size()));
  response.mutable_usage()->set_completion_tokens(completion_tokens);
  response.mutable_usage()->set_cached_tokens(cached_tokens);
  core_->metrics.prompt_tokens->Increment(prepared_.tokens.size());
  core_->metrics.cached_tokens->Increment(static_cast<uint64_t>(cached_tokens));
  core_->metrics.ObservePhases(last.flow.phases());
  const PhaseClock& phases = last.flow.phases();
  const RequestFlow::Summary& summary = SummaryOf(last);
  v1::Timeline* timeline = response.mutable_timeline();
  timeline->set_queued_ms(ToMs(phases.spent(Phase::kQueued)));
  timeline->set_tokenise_ms(ToMs(phases.spent(Phase::kTokenise)));
  timeline->set_landing_ms(ToMs(phases.spent(Phase::kLanding)));
  timeline->set_prefill_ms(ToMs(phases.spent(Phase::kPrefill)));
  timeline->set_transfer_exposed_ms(ToMs(phases.spent(Phase::kTransferExposed)));
  timeline->set_first_step_ms(ToMs(phases.spent(Phase::kFirstStep)));
  timeline->set_decode_ms(ToMs(phases.spent(Phase::kDecode)));
  timeline->set_total_ms(ToMs(phases.total()));
  timeline->set_prefill_worker(summary.prefill_worker);
  timeline->set_decode_worker(summary.decode_worker);
  timeline->set_disaggregated(summary.disaggregated);
  timeline->set_reason(summary.reason);
  timeline->set_transport(summary.transport);
  timeline->set_kv_bytes(summary.kv_bytes);
  timeline->set_attempts(summary.attempts);
  timeline->set_recoveries(summary.recoveries);
  timeline->set_history_tokens(summary.history_tokens);
  return response;
}

// At the end, when the flows have ended too: how it went, for the log and the trace.
RequestOutcome Generation::Outcome(const absl::Status& status) const {
  RequestOutcome outcome{.id = id_,
                         .key_name = key_name_,
                         .client_id = request_.request_id(),
                         .trace_id = trace_.trace_id(),
                         .model = core_->has_model() ? core_->model.name : "",
                         .chat = is_chat_,
                         .num_prompt_tokens = static_cast<int64_t>(prepared_.tokens.size()),
                         .begin = arrived_,
                         .end = Clock::Real()->Now(),
                         .status = status,
                         .phases = &phases_};
  for (const auto& choice : choices_) {
    outcome.num_completion_tokens += choice->text.num_tokens();
    if (outcome.summary != nullptr && choice->flow.phases().total() <= outcome.phases->total()) continue;
    outcome.phases = &choice->flow.phases();
    outcome.summary = &SummaryOf(*choice);
  }
  if (status.ok()) outcome.finish_reason = choices_.front()->text.finish_reason();
  return outcome;
}

}  // namespace baton
