// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSPORTS_MAKE_LINK_H_
#define BATON_COMMON_KV_TRANSFER_TRANSPORTS_MAKE_LINK_H_

#include "absl/time/time.h"
#include "common/kv_transfer/link_sender.h"

namespace baton {

// Makes links to the receiver that `offer` names. A peer that takes nothing for `stall_timeout` has stalled.
KvLinkFactory LinkFactoryFor(const TransportOffer& offer, absl::Duration stall_timeout);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSPORTS_MAKE_LINK_H_
