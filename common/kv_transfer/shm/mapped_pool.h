// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_SHM_MAPPED_POOL_H_
#define BATON_COMMON_KV_TRANSFER_SHM_MAPPED_POOL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/kv_transfer/stream/peer_pool.h"
#include "common/kv_transfer/stream/socket.h"
#include "common/kv_transfer/stream/wire_format.h"

namespace baton {

// The receiver's pool through a mapping of its memfd: what is placed has arrived.
//   FAILED_PRECONDITION  no memory came along, or it is not what the Welcome says.
absl::StatusOr<std::unique_ptr<PeerPool>> MapPeerPool(const StreamHello& welcome, const Fd& memory);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_SHM_MAPPED_POOL_H_
