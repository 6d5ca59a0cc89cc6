// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/prefill_call_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/base/token_hash.h"
#include "common/kv_transfer/grpc/wire.h"
#include "common/rpc/status_conversion.h"
#include "common/worker/transfer_span.h"

namespace baton {
namespace {

CacheKey KeyOf(const WorkerRuntime& runtime, const internal::PrefillStart& start) {
  return {runtime.model().fingerprint(), "", start.cache_salt()};
}

// The router gave the attempt up, or decode goes on to another one: nothing failed on the way.
const char* ResultOf(const absl::Status& sent) {
  if (sent.ok()) return "ok";
  return absl::IsCancelled(sent) || absl::IsAborted(sent) ? "cancelled" : "failed";
}

}  // namespace

PrefillCall::Stream* PrefillCall::Open() {
  service_->num_open_calls_.fetch_add(1);
  auto self = shared_from_this();
  stream_ = Stream::Create({
      .on_message = [self](internal::PrefillRequest&& request) { self->OnMessage(std::move(request)); },
      .on_peer_closed = [self] { self->OnRouterGone(); },
      .on_done = [self] { self->service_->num_open_calls_.fetch_sub(1); },
  });
  return stream_.get();
}

void PrefillCall::OnMessage(internal::PrefillRequest&& request) {
  auto self = shared_from_this();
  if (request.has_cancel()) {
    runtime_->engine()->Post([self](EngineCore& core) { self->Cancel(core, absl::CancelledError("router cancelled")); });
    return;
  }
  if (request.has_history_failed()) {
    const absl::Status why = FromErrorProto(request.history_failed());
    runtime_->engine()->Post([self, why](EngineCore& core) {
      if (self->pull_ != nullptr) self->pull_->Stop(core, why);
    });
    return;
  }
  absl::Status status = request.has_start() ? CheckStart(request.start())
                                            : absl::InvalidArgumentError("prefill: the message is neither Start nor Cancel");
  if (status.ok()) {
    auto start = std::make_shared<internal::PrefillStart>(std::move(*request.mutable_start()));
    const bool posted = runtime_->engine()->TryPost(
        [self, start](EngineCore& core) { self->Start(core, std::move(*start)); });
    if (posted) return;
    status = absl::ResourceExhaustedError(absl::StrCat(runtime_->id(), ": the engine's inbox is full"));
  }
  runtime_->engine()->Post([self, status](EngineCore& core) { self->Answer(status); });
}

absl::Status PrefillCall::CheckStart(const internal::PrefillStart& start) const {
  if (runtime_->draining()) return absl::UnavailableError(absl::StrCat(runtime_->id(), " is draining"));
  if (absl::Status status = runtime_->CheckTokens(start.model_fingerprint(), {start.tokens().data(), static_cast<size_t>(start.tokens_size())}); !status.ok()) return status;
  const int num_tokens = start.tokens_size() - 1;
  if (start.attempt() < 1) return absl::InvalidArgumentError(absl::StrCat("attempt ", start.attempt(), " is under 1"));
  // Block sizes are multiples of 16; decode's need not be ours.
  if (start.first_missing_token() < 0 || start.first_missing_token() >= num_tokens ||
      start.first_missing_token() % kTokensPerUnit != 0) {
    return absl::InvalidArgumentError(absl::StrCat("first_missing_token ", start.first_missing_token(),
                                                   " is no multiple of ", kTokensPerUnit, " under ", num_tokens));
  }
  if (start.kv_endpoints().empty() && start.kv_address().empty()) {
    return absl::InvalidArgumentError("kv_endpoints is empty, and so is kv_address");
  }
  return absl::OkStatus();
}

void PrefillCall::OnRouterGone() {
  auto self = shared_from_this();
  runtime_->engine()->Post([self](EngineCore& core) { self->Cancel(core, absl::CancelledError("router went away")); });
}

void PrefillCall::Start(EngineCore& core, internal::PrefillStart start) {
  if (answered_ || id_ != 0) return Answer(absl::InvalidArgumentError("prefill: a second Start"));
  start_ = std::move(start);
  received_ = Clock::Real()->Now();
  id_ = service_->next_sequence_.fetch_add(1);
  if (absl::Status status = BeginTransfer(); !status.ok()) {
    ended_ = true;
    return Answer(status);
  }
  auto self = shared_from_this();
  pull_ = service_->StartPull(core, start_, KeyOf(*runtime_, start_),
                              [self](EngineCore& c, const HistoryPull::Result& result) { self->OnPulled(c, result); });
  if (pull_ == nullptr) return Compute(core);
  SendWantsHistory();
}

void PrefillCall::SendWantsHistory() {
  internal::PrefillEvent event;
  internal::WantsHistory* wanted = event.mutable_history();
  wanted->set_first_token(pull_->first_token());
  wanted->set_num_tokens(pull_->num_tokens());
  wanted->set_worker(runtime_->id());
  wanted->set_incarnation(runtime_->incarnation());
  wanted->set_write_token(pull_->token().bytes());
  for (const TransportOffer& offer : service_->receivers_.offers()) *wanted->add_kv_endpoints() = ToProto(offer);
  stream_->SendLast(std::move(event));
}

void PrefillCall::OnPulled(EngineCore& core, const HistoryPull::Result& result) {
  if (result.status.ok()) history_tokens_ = pull_->num_tokens() - pull_->first_token();
  pull_ = nullptr;
  if (!ended_) Compute(core);
}

void PrefillCall::Compute(EngineCore& core) {
  SequenceSpec spec;
  spec.tokens.assign(start_.tokens().begin(), start_.tokens().end());
  spec.num_prompt_tokens = start_.tokens_size();
  spec.cache_key = KeyOf(*runtime_, start_);
  spec.priority = std::clamp(start_.priority(), -kMaxPriority, kMaxPriority);
  auto self = shared_from_this();
  EngineCore* engine_core = &core;
  SequenceSink sink;
  sink.on_progress = [self, engine_core](const PrefillProgress& progress) { self->OnProgress(*engine_core, progress); };
  sink.reads_device = [self] { return self->sender_->ReadsDevice(self->transfer_); };
  sink.on_prefilled = [self, engine_core](absl::Status status) { self->OnPrefilled(*engine_core, status); };
  const absl::Status status = core.AddPrefill(id_, std::move(spec), start_.first_missing_token(), std::move(sink));
  if (!status.ok()) Cancel(core, status);
}

// At once, so that asking decode costs nothing: the prompt is queued or computed meanwhile.
absl::Status PrefillCall::BeginTransfer() {
  peer_ = {start_.decode_worker(), start_.decode_incarnation(), OffersFromProto(start_.kv_endpoints())};
  if (peer_.offers.empty()) peer_.offers = {{TransportKind::kGrpc, "", start_.kv_address()}};
  BATON_ASSIGN_OR_RETURN(sender_, service_->links_.Choose(peer_));
  SendJob job;
  job.transfer = FromProto(start_.transfer());
  job.attempt = start_.attempt();
  job.peer_incarnation = start_.decode_incarnation();
  job.first_token = start_.first_missing_token();
  job.num_tokens = start_.tokens_size() - 1;
  job.token = WriteToken(start_.write_token());
  auto self = shared_from_this();
  job.on_done = [self](const absl::Status& status, const SendStats& stats) {
    self->runtime_->engine()->Post([self, status, stats](EngineCore& core) { self->OnSent(core, status, stats); });
  };
  transfer_ = sender_->Begin(std::move(job));
  return absl::OkStatus();
}

void PrefillCall::GiveBlocks(EngineCore& core) {
  if (!blocks_.empty()) return;
  first_progress_ = Clock::Real()->Now();
  cached_tokens_ = core.NumCachedTokensOf(id_);
  const std::span<const BlockId> blocks = core.BlocksOf(id_);
  blocks_.assign(blocks.begin(), blocks.end());
  core.RetainBlocks(blocks_);
  sender_->SetBlocks(transfer_, blocks_);
}

void PrefillCall::OnProgress(EngineCore& core, const PrefillProgress& progress) {
  if (sent_) return;
  GiveBlocks(core);
  sender_->Push(transfer_, progress.layer_begin, progress.layer_end, progress.token_begin, progress.token_end);
}

void PrefillCall::OnPrefilled(EngineCore& core, const absl::Status& status) {
  computed_ = Clock::Real()->Now();
  if (!status.ok()) return Cancel(core, status);
  GiveBlocks(core);
  Manifest manifest;
  manifest.model_fingerprint = runtime_->model().fingerprint();
  manifest.numerics = runtime_->compatibility().numerics;
  manifest.first_token = start_.first_missing_token();
  manifest.num_tokens = start_.tokens_size() - 1;
  manifest.token_hash = HashTokens({start_.tokens().data(), static_cast<size_t>(manifest.num_tokens)}).low;
  sender_->Finish(transfer_, std::move(manifest));
  ended_ = true;
  core.Finish(id_);  // The sender's own references keep the blocks.
}

void PrefillCall::OnSent(EngineCore& core, const absl::Status& status, const SendStats& stats) {
  sent_ = true;
  send_stats_ = stats;
  send_status_ = status;
  core.ReleaseBlocks(blocks_);
  const char* const transport = TransportName(sender_->kind());
  runtime_->CountTransfer(transport, ResultOf(status), stats.payload_bytes);
  service_->links_.Report(peer_, sender_->kind(), status);
  if (!ended_) {
    // The link failed while the prompt is still being computed: nobody can take the rest.
    ended_ = true;
    core.Cancel(id_);
    if (pull_ != nullptr) pull_->Stop(core, absl::CancelledError("the attempt has ended"));
  }
  if (!status.ok()) return Answer(failure_.ok() ? status : failure_);
  runtime_->ObservePrefill(first_progress_ - received_, absl::Milliseconds(stats.tail_ms));
  internal::PrefillEvent event;
  internal::PrefillDone* done = event.mutable_done();
  done->set_queued_ms(ToMs(first_progress_ - received_));
  done->set_compute_ms(ToMs(computed_ - first_progress_));
  done->set_transfer_tail_ms(stats.tail_ms);
  done->set_cached_tokens(cached_tokens_);
  done->set_computed_tokens(start_.tokens_size() - 1 - cached_tokens_);
  done->set_kv_bytes(stats.payload_bytes);
  done->set_transport(transport);
  done->set_history_tokens(std::min(history_tokens_, cached_tokens_));
  if (answered_) return;
  answered_ = true;
  RecordTrace(absl::OkStatus());
  stream_->FinishWith(std::move(event), absl::OkStatus());
}

void PrefillCall::Cancel(EngineCore& core, const absl::Status& why) {
  if (answered_) return;
  if (id_ == 0) return Answer(why);
  if (!ended_) {
    ended_ = true;
    core.Cancel(id_);
    if (pull_ != nullptr) pull_->Stop(core, absl::CancelledError("the attempt has ended"));
  }
  failure_ = why;
  if (transfer_ == nullptr) return Answer(why);
  sender_->Cancel(transfer_);  // OnSent answers.
}

void PrefillCall::Answer(const absl::Status& status) {
  if (answered_) return;
  answered_ = true;
  RecordTrace(status);
  if (!absl::IsCancelled(status)) {
    BATON_LOG(WARNING) << "prefill of " << start_.request_id() << " attempt " << start_.attempt() << " failed: " << status.message();
  }
  internal::PrefillEvent event;
  *event.mutable_failed() = ToErrorProto(status);
  stream_->FinishWith(std::move(event), absl::OkStatus());
}

// A call that was never begun has no span.
void PrefillCall::RecordTrace(const absl::Status& status) const {
  Tracer& tracer = *runtime_->tracer();
  if (id_ == 0 || !tracer.Records(caller_)) return;
  const MonotonicTime now = Clock::Real()->Now(), never = absl::ZeroDuration();
  const TraceContext own = NewChild(caller_);
  const auto record = [&](const char* name, MonotonicTime begin, MonotonicTime end) {
    end = end == never ? now : std::max(begin, end);
    tracer.Record({.context = NewChild(own), .parent = own.span, .name = name, .begin = begin, .end = end, .row = own.span});
  };
  record("prefill.queued", received_, first_progress_);
  if (first_progress_ != never) record("prefill.compute", first_progress_, computed_);
  if (sent_) {
    tracer.Record({.context = TransferSpan(caller_, FromProto(start_.transfer()), start_.attempt()),
                   .parent = own.span,
                   .name = "kv.send",
                   .kind = SpanKind::kClient,
                   .begin = first_progress_ == never ? received_ : first_progress_,
                   .end = now,
                   .attributes = {{"baton.attempt", int64_t{start_.attempt()}},
                                  {"baton.transport", std::string(TransportName(sender_->kind()))},
                                  {"baton.kv_bytes", send_stats_.payload_bytes},
                                  {"baton.tail_ms", send_stats_.tail_ms}},
                   .status = send_status_,
                   .row = own.span ^ 1});
  }
  tracer.Record({.context = own,
                 .parent = caller_.span,
                 .name = "prefill",
                 .kind = SpanKind::kServer,
                 .begin = received_,
                 .end = now,
                 .attributes = {{"gen_ai.response.id", start_.request_id()},
                                {"baton.tokens", int64_t{start_.tokens_size() - 1}},
                                {"baton.cached_tokens", int64_t{cached_tokens_}},
                                {"baton.transfer", FromProto(start_.transfer()).ToString()},
                                {"baton.attempt", int64_t{start_.attempt()}},
                                {"baton.decode_worker", start_.decode_worker()}},
                 .status = status,
                 .row = own.span});
}

}  // namespace baton
