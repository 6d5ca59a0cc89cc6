// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/nccl/nccl_transport.h"

#include <utility>

#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/nccl/nccl_payloads.h"
#include "common/kv_transfer/nccl/nccl_runtime.h"
#include "common/kv_transfer/stream/stream_link.h"
#include "common/kv_transfer/stream/stream_receiver.h"

namespace baton {

absl::StatusOr<std::shared_ptr<NcclRuntime>> OpenNccl(const NcclTransportOptions& options) { return NcclRuntime::Open(options); }

absl::StatusOr<std::unique_ptr<KvReceiver>> StartNcclKvReceiver(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout,
                                                                const std::string& host, const std::string& advertised_host,
                                                                KvReceiverOptions options, LandingDirectory* directory,
                                                                KvReceiverEvents events) {
  std::string address;
  BATON_ASSIGN_OR_RETURN(Fd listening, ListenTcp(host, &address));
  BATON_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(address));
  StreamReceiverOptions receiver;
  receiver.kind = TransportKind::kNccl;
  receiver.address = FormatHostPort(advertised_host, bound.port);
  receiver.open_payloads = [runtime, stall_timeout, pool = options.pool](std::span<const uint8_t> invitation) {
    return OpenNcclPayloadReader(runtime, stall_timeout, pool, invitation);
  };
  return std::make_unique<StreamReceiver>(receiver, std::move(options), std::move(listening), directory, std::move(events));
}

std::unique_ptr<KvLink> MakeNcclKvLink(std::shared_ptr<NcclRuntime> runtime, const NcclKvLinkOptions& options,
                                       KvLink::Events events) {
  StreamLinkOptions link;
  link.kind = TransportKind::kNccl;
  link.address = options.address;
  link.connect = [address = options.address](absl::Duration timeout) { return ConnectTcp(address, timeout); };
  link.stall_timeout = options.stall_timeout;
  link.make_payloads = [runtime, stall_timeout = options.stall_timeout, source = options.source] {
    return MakeNcclPayloadWriter(runtime, stall_timeout, source);
  };
  link.payloads_sum_cells = SumsCellsOnDevice(options.source);
  return std::make_unique<StreamLink>(std::move(link), std::move(events));
}

}  // namespace baton
