// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/shm/shm_transport.h"

#include <utility>

#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/shm/mapped_pool.h"
#include "common/kv_transfer/stream/stream_link.h"
#include "common/kv_transfer/stream/stream_receiver.h"

namespace baton {

absl::StatusOr<std::unique_ptr<KvReceiver>> StartShmKvReceiver(KvReceiverOptions options, bool share_pool,
                                                               LandingDirectory* directory, KvReceiverEvents events) {
  if (share_pool && options.pool->shared_fd() < 0) return absl::FailedPreconditionError("the KV pool is not in shared memory");
  StreamReceiverOptions receiver;
  receiver.kind = TransportKind::kShm;
  receiver.address = NewId("baton-kv");  // Another one for every run: a name never leads to another process's pool.
  receiver.same_user = true;
  receiver.share_pool = share_pool;
  BATON_ASSIGN_OR_RETURN(Fd listening, ListenUnix(receiver.address));
  return std::make_unique<StreamReceiver>(receiver, std::move(options), std::move(listening), directory, std::move(events));
}

std::unique_ptr<KvLink> MakeShmKvLink(const ShmKvLinkOptions& options, KvLink::Events events) {
  StreamLinkOptions link;
  link.kind = TransportKind::kShm;
  link.address = options.address;
  link.connect = [address = options.address](absl::Duration) { return ConnectUnix(address); };
  link.open_pool = MapPeerPool;
  link.stall_timeout = options.stall_timeout;
  return std::make_unique<StreamLink>(std::move(link), std::move(events));
}

}  // namespace baton
