// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/prefill_service.h"

#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "common/kv_transfer/confidential_transports.h"
#include "common/kv_transfer/grpc/wire.h"
#include "common/rpc/trace_metadata.h"
#include "common/worker/worker_links.h"
#include "prefill_worker/prefill_call_service.h"

namespace baton {

PrefillService::PrefillService(WorkerRuntime* runtime)
    : runtime_(runtime),
      links_(WorkerLinksOptions(runtime), Clock::Real()),
      receivers_(ReceiverOptions(), &directory_, ReceiverEvents()),
      pull_policy_(runtime->options().pull_history, runtime->pool()->layout().token_bytes(), runtime->options().transfer_timeout,
                   Clock::Real()) {
  NotePullRates();
}

// For load reports, which other threads make.
void PrefillService::NotePullRates() {
  if (ReceiverOptions().kinds.empty()) return;
  history_ms_ = pull_policy_.fixed_ms();
  history_ms_per_token_ = pull_policy_.ms_per_token();
}

PrefillService::~PrefillService() {
  StopLinks();
  for (const auto& [name, pull] : pulls_) pull->Abandon();
}

void PrefillService::StartReceivers(const std::string& address) {
  if (ReceiverOptions().kinds.empty()) return;
  const absl::Status started = receivers_.Start(address);
  if (!started.ok()) BATON_LOG(WARNING) << "histories are computed, not pulled: " << started.message();
}

void PrefillService::StopLinks() {
  links_.Stop();
  receivers_.Stop();
}

// Nobody writes into this pool by himself. What comes is cached, and sent on to decode workers whose own KV may come as it is:
// never in eight bits.
KvReceiverSetOptions PrefillService::ReceiverOptions() const {
  KvReceiverSetOptions options;
  options.receiver = ReceiverOptionsOf(runtime_);
  options.receiver.compatibility.kv_wire_layout.clear();
  const bool pulls = runtime_->options().pull_history != PullHistory::kNever && runtime_->options().engine.enable_prefix_cache;
  if (pulls) options.kinds = runtime_->options().transports;
  options.listen_host = runtime_->listen_host();
  options.share_pool = false;
  return options;
}

KvReceiverEvents PrefillService::ReceiverEvents() {
  KvReceiverEvents events;
  events.on_open = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    WithPull({transfer, attempt}, [this, transfer, attempt, peer](EngineCore& core, HistoryPull* pull) {
      if (pull != nullptr) return pull->OnOpen(core, peer);
      receivers_.Of(peer.transport)->Deny(peer, transfer, attempt, absl::AbortedError("the pull is over"));
    });
  };
  events.on_manifest = [this](const TransferId& transfer, int attempt, const PeerId& peer, const absl::Status& verified,
                              const LandingStats& stats) {
    WithPull({transfer, attempt}, [peer, verified, stats](EngineCore& core, HistoryPull* pull) {
      if (pull != nullptr) pull->OnManifest(core, peer, verified, stats);
    });
  };
  events.on_aborted = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    WithPull({transfer, attempt}, [peer](EngineCore& core, HistoryPull* pull) {
      if (pull != nullptr) pull->OnAborted(core, peer);
    });
  };
  events.on_writer_gone = [](const PeerId&) {};  // Of one-sided writers.
  events.on_link_closed = [this](const PeerId& peer) {
    runtime_->engine()->Post([this, peer](EngineCore& core) {
      const std::map<PullName, std::shared_ptr<HistoryPull>> pulls = pulls_;  // One that ends leaves the map.
      for (const auto& [name, pull] : pulls) pull->OnLinkClosed(core, peer);
    });
  };
  events.on_denied = [this](const PeerId& peer) { runtime_->CountDeniedWriter(TransportName(peer.transport)); };
  return events;
}

void PrefillService::WithPull(const PullName& name, const std::function<void(EngineCore&, HistoryPull*)>& event) {
  runtime_->engine()->Post([this, name, event](EngineCore& core) {
    const auto it = pulls_.find(name);
    event(core, it == pulls_.end() ? nullptr : it->second.get());
  });
}

std::shared_ptr<HistoryPull> PrefillService::StartPull(EngineCore& core, const internal::PrefillStart& start, const CacheKey& key,
                                                       HistoryPull::OnEnd on_end) {
  const PullName name(FromProto(start.transfer()), start.attempt());
  const int block_size = runtime_->pool()->layout().block_size;
  const int num_tokens = start.first_missing_token() / block_size * block_size;
  if (!start.sends_history() || num_tokens == 0 || pulls_.contains(name) || receivers_.offers().empty()) return nullptr;
  const std::span<const int32_t> tokens(start.tokens().data(), static_cast<size_t>(num_tokens));
  const double rate = RatesOf(core.stats().prefill.recent()).tokens_per_second;
  const double ms_per_token = rate > 0 ? 1000 / rate : 0;
  const int missing = num_tokens - core.NumCached(key, tokens);
  const PullPolicy::Source source(start.decode_worker(), start.decode_incarnation());
  if (!pull_policy_.ShouldPull(source, missing, ms_per_token)) return nullptr;
  auto landing = core.ReservePrefix(key, tokens);
  if (!landing.ok()) return nullptr;  // The prompt waits for blocks like any other.

  HistoryPull::Options options;
  options.transfer = name.first;
  options.attempt = name.second;
  options.decode_incarnation = start.decode_incarnation();
  options.key = key;
  options.tokens.assign(tokens.begin(), tokens.end());
  options.landing = *std::move(landing);
  options.patience = pull_policy_.Patience(missing, ms_per_token);
  auto pull = std::make_shared<HistoryPull>(runtime_, &directory_, &receivers_, std::move(options));
  pulls_[name] = pull;
  pull_policy_.OnBegin();
  pull->Begin([this, name, source, on_end = std::move(on_end)](EngineCore& core, const HistoryPull::Result& result) {
    OnPullEnded(name, source, result);
    on_end(core, result);
  });
  return pull;
}

void PrefillService::OnPullEnded(const PullName& name, const PullPolicy::Source& source, const HistoryPull::Result& result) {
  pulls_.erase(name);
  const absl::Status& status = result.status;
  const bool unwanted = absl::IsCancelled(status) || absl::IsAborted(status);
  runtime_->CountHistory(result.transport, status.ok() ? "ok" : unwanted ? "cancelled" : "failed", result.stats.payload_bytes);
  if (status.ok()) {
    pull_policy_.OnPulled(result.stats.payload_bytes, result.took);
    return NotePullRates();
  }
  if (unwanted) return pull_policy_.OnGivenUp();
  pull_policy_.OnFailed(source, status);
  if (absl::IsDataLoss(status)) runtime_->CountCorruptTransfer(result.transport);
  BATON_LOG(WARNING) << "transfer " << name.first.ToString() << ": the history that " << source.first << " has is computed, not pulled: "
                     << status.message();
}

grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<PrefillCall>(this, TraceContextOf(*context));
  return call->Open()->reactor();
}

void PrefillService::AddLoad(internal::WorkerLoad* load) const {
  load->set_history_ms(history_ms_.load());
  load->set_history_ms_per_token(history_ms_per_token_.load());
  for (const auto& [worker, used] : links_.used()) {
    internal::KvLinkState* link = load->add_kv_links();
    link->set_worker(worker);
    link->set_transport(AnnouncedTransport(used.kind, runtime_->options().cluster_tls != nullptr));
    link->set_fallback(used.fallback);
  }
}

}  // namespace baton
