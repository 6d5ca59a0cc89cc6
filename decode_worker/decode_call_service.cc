// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/decode_call_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/token_hash.h"
#include "common/kv_transfer/grpc/wire.h"
#include "common/rpc/status_conversion.h"
#include "decode_worker/wire.h"

namespace baton {

namespace {

constexpr size_t kMaxEarly = 8;  // A router says hardly more before it has heard of a landing.

}  // namespace

using Kind = DecodeHandoff::Action::Kind;

DecodeCall::Stream::Callbacks DecodeCall::Open() {
  service_->num_open_calls_.fetch_add(1);
  auto self = shared_from_this();
  return {
      .on_message = [self](internal::DecodeRequest&& request) { self->OnMessage(std::move(request)); },
      .on_peer_closed =
          [self] { self->runtime_->engine()->Post([self](EngineCore& core) { self->OnRouterGone(core); }); },
      .on_done = [self] { self->service_->num_open_calls_.fetch_sub(1); },
  };
}

// ---- gRPC threads.

void DecodeCall::OnMessage(internal::DecodeRequest&& request) {
  auto self = shared_from_this();
  if (!request.has_start()) {
    auto shared = std::make_shared<internal::DecodeRequest>(std::move(request));
    runtime_->engine()->Post([self, shared](EngineCore& core) { self->Handle(core, *shared); });
    return;
  }
  if (std::exchange(started_, true)) return Refuse(absl::InvalidArgumentError("decode: a second Start"));
  auto spec = service_->MakeSpec(request.start());
  if (!spec.ok()) return Refuse(spec.status());
  auto start = std::make_shared<internal::DecodeStart>(std::move(*request.mutable_start()));
  auto shared_spec = std::make_shared<SequenceSpec>(*std::move(spec));
  service_->grammars_.Get(start->format(), [self, start, shared_spec](absl::StatusOr<std::shared_ptr<Grammar>> grammar) {
    if (!grammar.ok()) return self->Refuse(grammar.status());
    shared_spec->sampling.grammar = *std::move(grammar);
    self->PostStart(start, shared_spec);
  });
}

void DecodeCall::PostStart(std::shared_ptr<internal::DecodeStart> start, std::shared_ptr<SequenceSpec> spec) {
  auto self = shared_from_this();
  const bool posted = runtime_->engine()->TryPost([self, start, spec](EngineCore& core) { self->Start(core, *start, std::move(*spec)); });
  if (!posted) Refuse(absl::ResourceExhaustedError(absl::StrCat(runtime_->id(), ": the engine's inbox is full")));
}

void DecodeCall::Refuse(const absl::Status& status) {
  internal::DecodeEvent event;
  *event.mutable_refused() = ToErrorProto(status);
  stream_->FinishWith(std::move(event), absl::OkStatus());
}

// ---- Engine thread: the router's messages.

void DecodeCall::Start(EngineCore& core, const internal::DecodeStart& start, SequenceSpec spec) {
  if (over_) return;  // The router went away meanwhile.
  transfer_ = FromProto(start.transfer());
  request_id_ = start.request_id();
  num_choices_ = spec.num_choices;
  token_hash_ = HashTokens({spec.tokens.data(), spec.tokens.size() - 1}).low;
  if (service_->calls_.contains(transfer_)) {
    over_ = true;
    return Refuse(absl::InvalidArgumentError(absl::StrCat("transfer ", transfer_.ToString(), " is open already")));
  }
  id_ = service_->next_sequence_.fetch_add(1);
  auto landing = core.ReserveLanding(id_, std::move(spec), MakeSink(core));
  if (!landing.ok()) {
    over_ = true;
    return Refuse(landing.status());
  }
  landing_ = *std::move(landing);
  trace_.Begin(transfer_, request_id_, landing_.num_cached_tokens);
  cached_tokens_.assign(start.tokens().begin(), start.tokens().begin() + landing_.num_cached_tokens);
  service_->calls_[transfer_] = shared_from_this();
  Execute(core, handoff_.Start(landing_.complete(), start.prefill_locally()));
  for (const internal::DecodeRequest& request : std::exchange(early_, {})) Handle(core, request);
}

void DecodeCall::Handle(EngineCore& core, const internal::DecodeRequest& request) {
  if (over_) return;
  if (id_ == 0) {
    if (early_.size() < kMaxEarly) early_.push_back(request);
    return;
  }
  using Message = internal::DecodeRequest;
  switch (request.message_case()) {
    case Message::kAttempt: {
      const int attempt = request.attempt().attempt();
      const bool newer = handoff_.state() == DecodeHandoff::State::kLanding && attempt > handoff_.attempt();
      return Execute(core, handoff_.OnAttempt(attempt, newer && CloseZone()));
    }
    case Message::kPrefillLocally: {
      const int attempt = request.prefill_locally().attempt();
      const bool newer = handoff_.state() == DecodeHandoff::State::kLanding && attempt > handoff_.attempt();
      return Execute(core, handoff_.OnPrefillLocally(attempt, newer && CloseZone()));
    }
    case Message::kSendHistory:
      return SendHistory(core, request.send_history());
    case Message::kStop:
      return Execute(core, handoff_.OnStop(CloseZone()));
    default:
      return;
  }
}

void DecodeCall::OnRouterGone(EngineCore& core) {
  if (id_ != 0 && !over_) {
    trace_.End(absl::CancelledError("router went away"));
    Execute(core, handoff_.OnRouterGone(CloseZone()));
  }
  over_ = true;
  stream_->Finish(absl::OkStatus());
  EndIfSettled();
}

void DecodeCall::OnTimeout(EngineCore& core, int attempt) {
  if (over_ || handoff_.attempt() != attempt || handoff_.state() != DecodeHandoff::State::kLanding) return;
  const MonotonicTime last_write = zone_ == nullptr ? absl::ZeroDuration() : zone_->last_write();
  const MonotonicTime now = Clock::Real()->Now();
  const bool waits = last_write == absl::ZeroDuration() ? now - opened_at_ < service_->landing_backstop()
                                                        : now - last_write < runtime_->options().transfer_timeout;
  if (waits) return ArmTimeout(attempt);
  BATON_LOG(WARNING) << "transfer " << transfer_.ToString() << " attempt " << attempt << " brought nothing for "
                     << absl::FormatDuration(runtime_->options().transfer_timeout);
  CountTransfer("failed");
  Execute(core, handoff_.OnTimeout(CloseZone()));
}

// ---- Engine thread: the KV link.

void DecodeCall::OnManifest(EngineCore& core, int attempt, const PeerId& peer, const absl::Status& verified,
                            const LandingStats& stats) {
  if (handoff_.state() == DecodeHandoff::State::kLanding && attempt == handoff_.attempt()) {
    const char* const transport = TransportName(peer.transport);
    if (verified.ok()) {
      stats_ = stats;
      transport_ = transport;
      service_->NotePrecision(peer.transport, stats);
    }
    writing_ = peer.transport;
    CountTransfer(verified.ok() ? "ok" : "failed", stats.payload_bytes);
    trace_.Received(attempt, transport, stats, verified);
    if (absl::IsDataLoss(verified)) {
      corrupt_.insert(peer.transport);
      service_->OnCorrupt(peer.transport);
    }
    CloseZone();
  }
  Execute(core, handoff_.OnManifest(attempt, peer, verified));
}

void DecodeCall::OnWriterGone(EngineCore& core, std::optional<int> attempt, const PeerId& peer) {
  Execute(core, handoff_.OnWriterGone(peer, attempt));
}

void DecodeCall::OnOpen(EngineCore& core, int attempt, const PeerId& peer) {
  Execute(core, handoff_.OnOpen(attempt, peer, service_->MayWriteItself(peer)));
}

void DecodeCall::OnLinkClosed(EngineCore& core, const PeerId& peer) { Execute(core, handoff_.OnLinkClosed(peer)); }

// ---- Engine thread: generation.

SequenceSink DecodeCall::MakeSink(EngineCore& core) {
  auto self = shared_from_this();
  EngineCore* engine_core = &core;
  SequenceSink sink;
  sink.on_token = [self](const TokenEvent& token) { self->OnToken(token); };
  sink.on_prompt_logprobs = [self](int first, const std::vector<SampledToken>& tokens) {
    if (self->over_) return;
    internal::DecodeEvent event;
    *event.mutable_prompt_logprobs() = PromptLogprobsToProto(first, tokens);
    self->stream_->SendLast(std::move(event));
  };
  sink.on_prefilled = [self, engine_core](absl::Status status) {
    self->local_prefill_ms_ = ToMs(Clock::Real()->Now() - self->local_begin_);
    self->trace_.Prefilled(self->local_begin_, status);
    self->Execute(*engine_core, self->handoff_.OnComputedLocally(status));
  };
  sink.on_failed = [self, engine_core](absl::Status status) { self->OnGenerationFailed(*engine_core, status); };
  return sink;
}

void DecodeCall::OnToken(const TokenEvent& token) {
  if (over_) return;
  trace_.Token();
  internal::DecodeEvent event;
  *event.mutable_tokens()->add_tokens() = TokenToProto(token);
  if (token.finish == FinishReason::kNone || ++choices_finished_ < num_choices_) {
    // Bounded by max_tokens, so a router that reads slowly costs a bounded queue.
    stream_->SendLast(std::move(event));
    return;
  }
  handoff_.OnFinished();
  SendLast(std::move(event));
}

void DecodeCall::OnGenerationFailed(EngineCore& core, const absl::Status& status) {
  if (over_) return;
  BATON_LOG(WARNING) << "generation for " << request_id_ << " failed: " << status.message();
  handoff_.OnFinished();
  core.Cancel(id_);
  internal::DecodeEvent event;
  *event.mutable_refused() = ToErrorProto(status);
  SendLast(std::move(event));
}

// ---- Engine thread: carrying out the handoff's actions.

bool DecodeCall::CloseZone() {
  if (zone_ == nullptr) return zone_pinned_;
  service_->directory_.Remove(transfer_);
  zone_pinned_ = std::exchange(zone_, nullptr)->Close();
  return zone_pinned_;
}

void DecodeCall::Execute(EngineCore& core, const DecodeHandoff::Actions& actions) {
  const bool ended = handoff_.state() == DecodeHandoff::State::kEnded;
  for (const DecodeHandoff::Action& action : actions) {
    // An action may have ended the call (no blocks for a new attempt): the rest of the list is void then.
    if (!ended && handoff_.state() == DecodeHandoff::State::kEnded) break;
    Do(core, action);
  }
  if (handoff_.state() != DecodeHandoff::State::kLanding) {
    timeout_.reset();
    history_.Cancel();
  }
  EndIfSettled();
}

void DecodeCall::Do(EngineCore& core, const DecodeHandoff::Action& action) {
  internal::DecodeEvent event;
  switch (action.kind) {
    case Kind::kSendLanding:
      return SendLanding(action.attempt);
    case Kind::kSendLanded:
      return SendLanded(action.attempt);
    case Kind::kSendFailed:
      CountTransfer("failed");
      event.mutable_failed()->set_attempt(action.attempt);
      *event.mutable_failed()->mutable_error() = ToErrorProto(action.status);
      stream_->SendLast(std::move(event));
      return;
    case Kind::kSendStopped:
      event.mutable_stopped();
      return SendLast(std::move(event));
    case Kind::kSendRefused:
      *event.mutable_refused() = ToErrorProto(action.status);
      return SendLast(std::move(event));
    case Kind::kGrant:
      writing_ = action.writer.transport;
      return Grant(action);
    case Kind::kDeny:
      return service_->receivers_.Of(action.writer.transport)->Deny(action.writer, transfer_, action.attempt, action.status);
    case Kind::kAbort:
      return service_->receivers_.Of(action.writer.transport)->Abort(action.writer, transfer_, action.attempt);
    case Kind::kOpenZone:
      CountTransfer("failed");  // The router asks for another attempt when one has failed.
      return OpenZone(action.attempt);
    case Kind::kReplaceBlocks:
      CountTransfer("failed");
      return ReplaceBlocks(core, action.attempt, action.writer);
    case Kind::kPrefillLocally: {
      CountTransfer("failed");
      local_begin_ = Clock::Real()->Now();
      const absl::Status status = core.PrefillLocally(id_);
      if (!status.ok()) Execute(core, handoff_.OnComputedLocally(status));
      return;
    }
    case Kind::kRun:
      return core.Landed(id_);
    case Kind::kCancel:
      CountTransfer("cancelled");
      return core.Cancel(id_);
    case Kind::kCancelQuarantined:
      CountTransfer("cancelled");
      return Quarantine(action.attempt, action.writer, core.CancelQuarantined(id_));
    case Kind::kReleaseQuarantine: {
      const Quarantined& quarantined = quarantined_[action.attempt];
      service_->CountQuarantined(quarantined.writer, -static_cast<int>(quarantined.blocks.size()));
      core.ReleaseQuarantined(quarantined.blocks);
      quarantined_.erase(action.attempt);
      return;
    }
  }
}

void DecodeCall::OpenZone(int attempt) {
  auto self = shared_from_this();
  history_.Cancel();  // An older attempt's.
  LandingZoneOptions options;
  options.transfer = transfer_;
  options.attempt = attempt;
  options.blocks = landing_.blocks;
  options.first_token = landing_.num_cached_tokens;
  options.num_tokens = landing_.num_tokens;
  options.token_hash = token_hash_;
  options.compatibility = runtime_->compatibility();
  options.token = WriteToken::Draw();
  zone_ = std::make_shared<LandingZone>(options, runtime_->pool(), Clock::Real(), [self, attempt] {
    self->runtime_->engine()->Post([self, attempt](EngineCore& core) {
      if (attempt == self->handoff_.attempt()) self->zone_pinned_ = false;
      self->Execute(core, self->handoff_.OnUnpinned(attempt));
    });
  });
  service_->directory_.Put(zone_);
  zone_pinned_ = false;
  opened_at_ = Clock::Real()->Now();
  ArmTimeout(attempt);
}

// A one-sided writer is told of no block that is not its to write.
void DecodeCall::Grant(const DecodeHandoff::Action& action) {
  LinkGrant grant{.one_sided = action.one_sided};
  if (action.one_sided) {
    const int block_size = runtime_->pool()->layout().block_size;
    const int num_blocks = (landing_.num_tokens + block_size - 1) / block_size;
    grant.blocks.assign(landing_.blocks.begin(), landing_.blocks.begin() + num_blocks);
    std::fill_n(grant.blocks.begin(), landing_.num_cached_tokens / block_size, -1);
  }
  service_->receivers_.Of(action.writer.transport)->Grant(action.writer, transfer_, action.attempt, grant);
}

void DecodeCall::Quarantine(int attempt, const PeerId& writer, std::vector<BlockId> blocks) {
  service_->CountQuarantined(writer, static_cast<int>(blocks.size()));
  quarantined_[attempt] = {writer, std::move(blocks)};
}

void DecodeCall::ReplaceBlocks(EngineCore& core, int attempt, const PeerId& writer) {
  std::vector<BlockId> old;
  auto landing = core.ReplaceLandingBlocks(id_, &old);
  if (!landing.ok() && old.empty()) old = core.CancelQuarantined(id_);
  Quarantine(attempt, writer, std::move(old));
  if (!landing.ok()) return Execute(core, handoff_.OnNoBlocks(landing.status()));
  landing_ = *std::move(landing);
}

void DecodeCall::CountTransfer(const char* result, int64_t bytes) {
  if (!writing_.has_value()) return;
  runtime_->CountTransfer(TransportName(*writing_), result, bytes);
  writing_.reset();
}

void DecodeCall::ArmTimeout(int attempt) {
  auto self = shared_from_this();
  timeout_ = std::make_unique<OneShotTimer>(runtime_->options().transfer_timeout, [self, attempt] {
    self->runtime_->engine()->Post([self, attempt](EngineCore& core) { self->OnTimeout(core, attempt); });
  });
}

void DecodeCall::SendLast(internal::DecodeEvent event) {
  if (std::exchange(over_, true)) return;
  trace_.End(event.has_refused() ? FromErrorProto(event.refused()) : absl::OkStatus());
  stream_->FinishWith(std::move(event), absl::OkStatus());
}

void DecodeCall::EndIfSettled() {
  if (!over_ || handoff_.has_quarantine() || id_ == 0) return;
  timeout_.reset();
  const auto it = service_->calls_.find(transfer_);
  if (it != service_->calls_.end() && it->second.get() == this) service_->calls_.erase(it);
}

}  // namespace baton
