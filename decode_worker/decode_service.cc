// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/decode_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/trace_metadata.h"
#include "common/worker/worker_links.h"
#include "decode_worker/decode_call_service.h"
#include "decode_worker/wire.h"

namespace baton {
namespace {

// How long a transport over which KV arrived corrupt is not offered.
constexpr absl::Duration kDistrust = absl::Seconds(30);
// Of the pool, what one peer's writers may hold in quarantine before they are given no more grants to write by themselves.
constexpr int kQuarantineShare = 8;

}  // namespace

DecodeService::DecodeService(WorkerRuntime* runtime)
    : runtime_(runtime),
      grammars_(runtime->tokenizer().answer_tokens, runtime->tokenizer().first_token_loses_spaces),
      receivers_({.receiver = ReceiverOptionsOf(runtime),
                  .kinds = runtime->options().transports,
                  .listen_host = runtime->listen_host()},
                 &directory_, ReceiverEvents()),
      links_(WorkerLinksOptions(runtime), Clock::Real()) {
  held_in_.Add(runtime->pool()->layout().dtype);
}

// The engine has stopped: nothing else touches the calls.
DecodeService::~DecodeService() {
  for (const auto& [transfer, call] : calls_) call->Abandon();
}

absl::Status DecodeService::StartReceivers(const std::string& address) { return receivers_.Start(address); }

grpc::ServerBidiReactor<internal::DecodeRequest, internal::DecodeEvent>* DecodeService::Decode(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<DecodeCall>(this, TraceContextOf(*context));
  auto stream = ServerEventStream<internal::DecodeRequest, internal::DecodeEvent>::Create(call->Open());
  call->SetStream(stream);
  return stream->reactor();
}

grpc::ServerBidiReactor<internal::DecodeCallRequests, internal::DecodeCallEvents>* DecodeService::DecodeMany(
    grpc::CallbackServerContext*) {
  const auto accept = [this](const internal::CallOpening& opening, std::shared_ptr<DecodeCall::Stream> stream) {
    auto call = std::make_shared<DecodeCall>(this, ParseTraceContext(opening.traceparent(), opening.tracestate()));
    call->SetStream(std::move(stream));
    return call->Open();
  };
  MutexLock lock(&streams_mutex_);
  const uint64_t number = next_stream_++;
  auto calls = DecodeCalls::Create(accept, [this, number] {
    MutexLock lock(&streams_mutex_);
    streams_.erase(number);
    stream_ended_.NotifyAll();
  });
  streams_.emplace(number, calls);
  return calls->reactor();
}

void DecodeService::FinishStreams(absl::Duration timeout) {
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  std::vector<std::shared_ptr<DecodeCalls>> open;
  {
    MutexLock lock(&streams_mutex_);
    for (const auto& [number, calls] : streams_) open.push_back(calls);
  }
  for (const auto& calls : open) calls->Finish(absl::OkStatus());
  MutexLock lock(&streams_mutex_);
  while (!streams_.empty()) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return;
    stream_ended_.WaitFor(&streams_mutex_, left);
  }
}

absl::StatusOr<SequenceSpec> DecodeService::MakeSpec(const internal::DecodeStart& start) {
  if (runtime_->draining()) return absl::UnavailableError(absl::StrCat(runtime_->id(), " is draining"));
  BATON_RETURN_IF_ERROR(runtime_->CheckTokens(start.model_fingerprint(), {start.tokens().data(), static_cast<size_t>(start.tokens_size())}));
  if (start.num_prompt_tokens() < 1 || start.num_prompt_tokens() > start.tokens_size()) {
    return absl::InvalidArgumentError(absl::StrCat("num_prompt_tokens ", start.num_prompt_tokens(), " is outside 1 to ",
                                                   start.tokens_size()));
  }
  if (start.num_choices() < 0 || start.num_choices() > 128) {
    return absl::InvalidArgumentError(absl::StrCat("num_choices ", start.num_choices(), " is outside 1 to 128"));
  }
  SequenceSpec spec;
  spec.tokens.assign(start.tokens().begin(), start.tokens().end());
  spec.num_prompt_tokens = start.num_prompt_tokens();
  spec.sampling = SamplingFromProto(start.sampling());
  BATON_RETURN_IF_ERROR(spec.sampling.Validate(runtime_->model().config().vocab_size));
  spec.cache_key = {runtime_->model().fingerprint(), "", start.cache_salt()};
  spec.priority = std::clamp(start.priority(), -kMaxPriority, kMaxPriority);
  spec.num_choices = std::max(1, start.num_choices());
  spec.first_choice = start.first_choice();
  spec.prompt_logprobs = start.prompt_logprobs() - 1;
  return spec;
}

void DecodeService::WithCall(const TransferId& transfer, const std::function<void(EngineCore&, DecodeCall&)>& event) {
  runtime_->engine()->Post([this, transfer, event](EngineCore& core) {
    const auto it = calls_.find(transfer);
    if (it == calls_.end()) return;
    const std::shared_ptr<DecodeCall> call = it->second;  // The call may leave the map.
    event(core, *call);
  });
}

void DecodeService::WithAllCalls(const std::function<void(EngineCore&, DecodeCall&)>& event) {
  runtime_->engine()->Post([this, event](EngineCore& core) {
    std::vector<std::shared_ptr<DecodeCall>> calls;
    for (const auto& [transfer, call] : calls_) calls.push_back(call);
    for (const auto& call : calls) event(core, *call);
  });
}

KvReceiverEvents DecodeService::ReceiverEvents() {
  KvReceiverEvents events;
  events.on_open = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    runtime_->engine()->Post([this, transfer, attempt, peer](EngineCore& core) {
      const auto it = calls_.find(transfer);
      if (it != calls_.end()) return it->second->OnOpen(core, attempt, peer);
      receivers_.Of(peer.transport)->Deny(peer, transfer, attempt, absl::AbortedError("the transfer has ended"));
    });
  };
  events.on_manifest = [this](const TransferId& transfer, int attempt, const PeerId& peer, const absl::Status& verified,
                              const LandingStats& stats) {
    WithCall(transfer, [attempt, peer, verified, stats](EngineCore& core, DecodeCall& call) {
      call.OnManifest(core, attempt, peer, verified, stats);
    });
  };
  events.on_aborted = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    WithCall(transfer, [attempt, peer](EngineCore& core, DecodeCall& call) { call.OnWriterGone(core, attempt, peer); });
  };
  events.on_writer_gone = [this](const PeerId& peer) {
    WithAllCalls([peer](EngineCore& core, DecodeCall& call) { call.OnWriterGone(core, std::nullopt, peer); });
  };
  events.on_link_closed = [this](const PeerId& peer) {
    WithAllCalls([peer](EngineCore& core, DecodeCall& call) { call.OnLinkClosed(core, peer); });
  };
  events.on_denied = [this](const PeerId& peer) { runtime_->CountDeniedWriter(TransportName(peer.transport)); };
  return events;
}

std::vector<TransportOffer> DecodeService::OffersWithout(const std::set<TransportKind>& corrupt) const {
  const MonotonicTime now = Clock::Real()->Now();
  const std::vector<TransportOffer> all = receivers_.offers();
  std::vector<TransportOffer> offers;
  for (const TransportOffer& offer : all) {
    const auto distrusted = distrusted_until_.find(offer.kind);
    if (corrupt.contains(offer.kind) || (distrusted != distrusted_until_.end() && now < distrusted->second)) continue;
    offers.push_back(offer);
  }
  return offers.empty() ? all : offers;
}

void DecodeService::OnCorrupt(TransportKind kind) {
  distrusted_until_[kind] = Clock::Real()->Now() + kDistrust;
  runtime_->CountCorruptTransfer(TransportName(kind));
  BATON_LOG(WARNING) << "KV that came by " << TransportName(kind) << " was corrupt; it is not offered for "
                     << absl::FormatDuration(kDistrust);
}

bool DecodeService::MayWriteItself(const PeerId& peer) const {
  if (!TransportOf(peer.transport).one_sided) return false;
  const auto it = quarantined_blocks_.find(peer);
  return it == quarantined_blocks_.end() || it->second < std::max(1, runtime_->pool()->num_blocks() / kQuarantineShare);
}

void DecodeService::NotePrecision(TransportKind kind, const LandingStats& stats) {
  held_in_.Add(KvPrecision::FromNumerics(stats.numerics).value_or(KvPrecision::Unknown()));
  const TransportInfo& transport = TransportOf(kind);
  if (runtime_->options().int8_wire && !transport.one_sided && !transport.needs_device) held_in_.Add(KvDtype::kInt8);
}

void DecodeService::CountQuarantined(const PeerId& peer, int num_blocks) {
  if (peer.worker.empty()) return;  // A frame being copied.
  if ((quarantined_blocks_[peer] += num_blocks) <= 0) quarantined_blocks_.erase(peer);
}

}  // namespace baton
