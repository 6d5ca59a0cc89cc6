// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/prefill_service.h"

#include <memory>
#include <utility>

#include "common/kv_transfer/confidential_transports.h"
#include "common/kv_transfer/frame_bytes.h"
#include "common/kv_transfer/transports/make_link.h"
#include "common/rpc/trace_metadata.h"
#include "prefill_worker/prefill_call_service.h"

namespace baton {

PrefillService::PrefillService(WorkerRuntime* runtime) : runtime_(runtime), links_(LinksOptions(), Clock::Real()) {}

PrefillService::~PrefillService() { StopSenders(); }

KvLinksOptions PrefillService::LinksOptions() {
  KvLinksOptions options;
  options.kinds = runtime_->options().transports;
  options.make_sender = [this](const TransportOffer& offer) -> std::shared_ptr<KvSender> {
    LinkSenderOptions sender;
    sender.self = {runtime_->id(), runtime_->incarnation(), offer.kind};
    sender.compatibility = runtime_->compatibility();
    sender.address = offer.address;
    sender.transfer_timeout = runtime_->options().transfer_timeout;
    sender.max_frame_bytes = FrameBytesFor(offer.kind);
    return std::make_shared<LinkSender>(sender, runtime_->pool(), LinkFactoryFor(offer, sender.transfer_timeout, runtime_->options().cluster_tls));
  };
  options.on_fallback = [this](TransportKind kind) { runtime_->CountTransportFallback(TransportName(kind)); };
  return options;
}

grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<PrefillCall>(this, TraceContextOf(*context));
  return call->Open()->reactor();
}

void PrefillService::AddLinks(internal::WorkerLoad* load) const {
  for (const auto& [worker, used] : links_.used()) {
    internal::KvLinkState* link = load->add_kv_links();
    link->set_worker(worker);
    link->set_transport(AnnouncedTransport(used.kind, runtime_->options().cluster_tls != nullptr));
    link->set_fallback(used.fallback);
  }
}

}  // namespace baton
