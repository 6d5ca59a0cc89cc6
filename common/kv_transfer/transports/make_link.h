// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSPORTS_MAKE_LINK_H_
#define BATON_COMMON_KV_TRANSFER_TRANSPORTS_MAKE_LINK_H_

#include <memory>

#include "absl/time/time.h"
#include "common/kv_transfer/link_sender.h"

namespace baton {

class KvPool;
class RpcTls;

// Makes links to the receiver that `offer` names. A peer that takes nothing for `stall_timeout` has stalled.
// By grpc it is encrypted with `tls`, if that is not null; the other kinds never are. `source` is the sender's pool, which outlives the
// links: cuda_ipc copies from where it lies on the device. Null: from the host.
KvLinkFactory LinkFactoryFor(const TransportOffer& offer, absl::Duration stall_timeout, std::shared_ptr<const RpcTls> tls = nullptr,
                             const KvPool* source = nullptr);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSPORTS_MAKE_LINK_H_
