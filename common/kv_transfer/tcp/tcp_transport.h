// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TCP_TCP_TRANSPORT_H_
#define BATON_COMMON_KV_TRANSFER_TCP_TCP_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/kv_receiver.h"

namespace baton {

// Raw TCP: frames by scatter-gather from the writer's blocks into the receiver's, over a few connections per pair.

// Listens on a free port of `host`; writers are told `advertised_host` with that port. `directory` outlives the receiver.
//   UNAVAILABLE  cannot listen there.
absl::StatusOr<std::unique_ptr<KvReceiver>> StartTcpKvReceiver(const std::string& host, const std::string& advertised_host,
                                                               KvReceiverOptions options, LandingDirectory* directory,
                                                               KvReceiverEvents events);

struct TcpKvLinkOptions {
  std::string address;
  absl::Duration stall_timeout = absl::Seconds(10);
  int num_connections = 2;  // One alone is held to what one queue of a network card, and one core at the other end, can do.
};
std::unique_ptr<KvLink> MakeTcpKvLink(const TcpKvLinkOptions& options, KvLink::Events events);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TCP_TCP_TRANSPORT_H_
