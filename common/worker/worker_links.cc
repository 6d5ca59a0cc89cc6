// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_links.h"

#include <memory>

#include "common/kv_transfer/frame_bytes.h"
#include "common/kv_transfer/transports/make_link.h"

namespace baton {

KvLinksOptions WorkerLinksOptions(WorkerRuntime* runtime) {
  KvLinksOptions options;
  options.kinds = runtime->options().transports;
  options.make_sender = [runtime](const TransportOffer& offer) -> std::shared_ptr<KvSender> {
    LinkSenderOptions sender;
    sender.self = {runtime->id(), runtime->incarnation(), offer.kind};
    sender.compatibility = runtime->compatibility();
    sender.address = offer.address;
    sender.transfer_timeout = runtime->options().transfer_timeout;
    sender.max_frame_bytes = FrameBytesFor(offer.kind);
    return std::make_shared<LinkSender>(sender, runtime->pool(),
                                        LinkFactoryFor(offer, sender.transfer_timeout, runtime->options().cluster_tls, runtime->pool()));
  };
  options.on_fallback = [runtime](TransportKind kind) { runtime->CountTransportFallback(TransportName(kind)); };
  return options;
}

KvReceiverOptions ReceiverOptionsOf(WorkerRuntime* runtime) {
  const WorkerOptions& options = runtime->options();
  return {.worker = runtime->id(),
          .incarnation = runtime->incarnation(),
          .compatibility = runtime->compatibility(),
          .pool = runtime->pool(),
          .require_tokens = options.cluster_tls != nullptr || !options.api_key_file.empty()};
}

}  // namespace baton
