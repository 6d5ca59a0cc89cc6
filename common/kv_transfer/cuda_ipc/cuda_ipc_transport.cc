// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"

#include <utility>

#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_runtime.h"
#include "common/kv_transfer/cuda_ipc/device_peer_pool.h"
#include "common/kv_transfer/cuda_ipc/device_placed_reader.h"
#include "common/kv_transfer/stream/stream_link.h"
#include "common/kv_transfer/stream/stream_receiver.h"

namespace baton {

absl::StatusOr<std::shared_ptr<CudaIpcRuntime>> OpenCudaIpc(const CudaIpcOptions& options) { return CudaIpcRuntime::Open(options); }

absl::StatusOr<std::unique_ptr<KvReceiver>> StartCudaIpcKvReceiver(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout,
                                                                   bool share_pool, KvReceiverOptions options, LandingDirectory* directory,
                                                                   KvReceiverEvents events) {
  StreamReceiverOptions receiver;
  receiver.kind = TransportKind::kCudaIpc;
  receiver.address = NewId("baton-kv-gpu");
  receiver.same_user = true;
  receiver.share_pool = share_pool;
  receiver.release_timeout = stall_timeout;
  if (share_pool) {
    BATON_ASSIGN_OR_RETURN(receiver.pool_memory, runtime->Export(*options.pool));
    receiver.open_placed = [runtime, stall_timeout, pool = options.pool] { return OpenDevicePlacedReader(runtime, stall_timeout, pool); };
  }
  BATON_ASSIGN_OR_RETURN(Fd listening, ListenUnix(receiver.address));
  return std::make_unique<StreamReceiver>(receiver, std::move(options), std::move(listening), directory, std::move(events));
}

std::unique_ptr<KvLink> MakeCudaIpcKvLink(std::shared_ptr<CudaIpcRuntime> runtime, const CudaIpcKvLinkOptions& options,
                                          KvLink::Events events) {
  StreamLinkOptions link;
  link.kind = TransportKind::kCudaIpc;
  link.address = options.address;
  // A new link says that the older ones write no more.
  link.connect = [runtime, address = options.address](absl::Duration) -> absl::StatusOr<Fd> {
    if (!runtime->AllEnded()) return absl::UnavailableError("copies of an earlier link by cuda_ipc have not ended");
    return ConnectUnix(address);
  };
  link.open_pool = [runtime, source = options.source, stall_timeout = options.stall_timeout](const StreamHello& welcome, const Fd&) {
    return OpenDevicePeerPool(runtime, stall_timeout, source, welcome);
  };
  link.stall_timeout = options.stall_timeout;
  return std::make_unique<StreamLink>(std::move(link), std::move(events));
}

}  // namespace baton
