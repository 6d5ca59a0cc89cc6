// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/tcp/tcp_transport.h"

#include <utility>

#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/stream/stream_link.h"
#include "common/kv_transfer/stream/stream_receiver.h"

namespace baton {

absl::StatusOr<std::unique_ptr<KvReceiver>> StartTcpKvReceiver(const std::string& host, const std::string& advertised_host,
                                                               KvReceiverOptions options, LandingDirectory* directory,
                                                               KvReceiverEvents events) {
  std::string address;
  BATON_ASSIGN_OR_RETURN(Fd listening, ListenTcp(host, &address));
  BATON_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(address));
  StreamReceiverOptions receiver;
  receiver.kind = TransportKind::kTcp;
  receiver.address = FormatHostPort(advertised_host, bound.port);
  return std::make_unique<StreamReceiver>(receiver, std::move(options), std::move(listening), directory, std::move(events));
}

std::unique_ptr<KvLink> MakeTcpKvLink(const TcpKvLinkOptions& options, KvLink::Events events) {
  StreamLinkOptions link;
  link.kind = TransportKind::kTcp;
  link.address = options.address;
  link.connect = [address = options.address](absl::Duration timeout) { return ConnectTcp(address, timeout); };
  link.num_connections = options.num_connections;
  link.stall_timeout = options.stall_timeout;
  return std::make_unique<StreamLink>(std::move(link), std::move(events));
}

}  // namespace baton
