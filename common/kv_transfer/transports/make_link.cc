// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/transports/make_link.h"

#include <utility>

#include "common/base/logging.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"
#include "common/kv_transfer/grpc/grpc_kv_link.h"
#include "common/kv_transfer/inproc/inproc_transport.h"
#include "common/kv_transfer/nccl/nccl_transport.h"
#include "common/kv_transfer/shm/shm_transport.h"
#include "common/kv_transfer/tcp/tcp_transport.h"
#include "common/kv_transfer/transports/device_transports.h"

namespace baton {

KvLinkFactory LinkFactoryFor(const TransportOffer& offer, absl::Duration stall_timeout, std::shared_ptr<const RpcTls> tls,
                             const KvPool* source) {
  switch (offer.kind) {
    case TransportKind::kInproc:
      return [offer](KvLink::Events events) { return std::make_unique<InprocKvLink>(offer.address, std::move(events)); };
    case TransportKind::kGrpc:
      return [offer, stall_timeout, tls](KvLink::Events events) {
        return std::make_unique<GrpcKvLink>(
            GrpcKvLinkOptions{.address = offer.address, .tls = tls, .stall_timeout = stall_timeout}, std::move(events));
      };
    case TransportKind::kShm:
      return [offer, stall_timeout](KvLink::Events events) {
        return MakeShmKvLink({.address = offer.address, .stall_timeout = stall_timeout}, std::move(events));
      };
    case TransportKind::kTcp:
      return [offer, stall_timeout](KvLink::Events events) {
        return MakeTcpKvLink({.address = offer.address, .stall_timeout = stall_timeout}, std::move(events));
      };
    case TransportKind::kNccl: {
      const std::shared_ptr<NcclRuntime> runtime = OpenedDeviceTransports().nccl;
      BATON_CHECK(runtime != nullptr) << "NCCL is not open";
      return [offer, stall_timeout, runtime, source](KvLink::Events events) {
        return MakeNcclKvLink(runtime, {.address = offer.address, .stall_timeout = stall_timeout, .source = source}, std::move(events));
      };
    }
    case TransportKind::kCudaIpc: {
      const std::shared_ptr<CudaIpcRuntime> runtime = OpenedDeviceTransports().cuda_ipc;
      BATON_CHECK(runtime != nullptr) << "CUDA is not open";
      return [offer, stall_timeout, runtime, source](KvLink::Events events) {
        return MakeCudaIpcKvLink(runtime, {.address = offer.address, .stall_timeout = stall_timeout, .source = source}, std::move(events));
      };
    }
  }
  BATON_CHECK(false) << "no KV links by " << TransportName(offer.kind);
  return nullptr;
}

}  // namespace baton
