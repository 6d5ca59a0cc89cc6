// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_SHM_SHM_TRANSPORT_H_
#define BATON_COMMON_KV_TRANSFER_SHM_SHM_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/kv_receiver.h"

namespace baton {

// One machine, one user: decode's pool lies in a sealed memfd that every writer gets over a Unix socket, and a writer with a
// grant writes into its blocks itself: one copy. The receiver verifies what lies there. The mapping is a matter of trust: a
// writer could write anywhere in it at any time, which is why the other end must be of the same user. A receiver that keeps its
// pool to itself gets the payload over the socket.

// With `share_pool`, `options.pool` was made by KvPool::CreateShared; without, no grant may be one-sided. `directory` outlives
// the receiver.
//   FAILED_PRECONDITION  the pool was not. UNAVAILABLE  no such sockets here.
absl::StatusOr<std::unique_ptr<KvReceiver>> StartShmKvReceiver(KvReceiverOptions options, bool share_pool,
                                                               LandingDirectory* directory, KvReceiverEvents events);

struct ShmKvLinkOptions {
  std::string address;
  absl::Duration stall_timeout = absl::Seconds(10);
};
std::unique_ptr<KvLink> MakeShmKvLink(const ShmKvLinkOptions& options, KvLink::Events events);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_SHM_SHM_TRANSPORT_H_
