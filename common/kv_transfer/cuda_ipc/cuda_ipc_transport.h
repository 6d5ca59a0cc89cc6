// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CUDA_IPC_CUDA_IPC_TRANSPORT_H_
#define BATON_COMMON_KV_TRANSFER_CUDA_IPC_CUDA_IPC_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/kv_receiver.h"

namespace baton {

// One machine, one user, GPUs at both ends: shm's kin. Decode's pool on the device is opened by every writer, by the driver's interprocess
// handle, which comes with Welcome over a Unix socket; a writer with a grant copies into its blocks from device to device. What lies there is
// verified there by decode. As with shm, the mapping is a matter of trust, and a receiver that keeps its pool to
// itself gets the payload over the socket. No header of CUDA here: a build without it has these functions too.

struct CudaIpcOptions {
  std::string cuda_driver = "libcuda.so.1";  // By file name or path.
  int ordinal = 0;  // Of the GPU.
};

// The driver and the GPU, shared by all links of the process.
class CudaIpcRuntime;

//   FAILED_PRECONDITION  this build has no CUDA; no driver or GPU here, or one whose memory no other process can open; says which.
//   INTERNAL             what the driver says.
absl::StatusOr<std::shared_ptr<CudaIpcRuntime>> OpenCudaIpc(const CudaIpcOptions& options);

// With `share_pool`, `options.pool` lies on the device; without, no grant may be one-sided. `directory` outlives the receiver. A copy to the
// host that does not end for `stall_timeout` ends the link.
//   FAILED_PRECONDITION  the pool is the host's, or the driver does not export it. UNAVAILABLE  no such sockets here.
absl::StatusOr<std::unique_ptr<KvReceiver>> StartCudaIpcKvReceiver(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout,
                                                                   bool share_pool, KvReceiverOptions options, LandingDirectory* directory,
                                                                   KvReceiverEvents events);

struct CudaIpcKvLinkOptions {
  std::string address;
  absl::Duration stall_timeout = absl::Seconds(10);
  const KvPool* source = nullptr;  // Cells of it are copied from the device, where it has them there. Outlives the link. Null: none are.
};
// Opens with UNAVAILABLE where the driver does not open the receiver's memory here, and as long as a copy of an earlier link of this process,
// given up, has not come to its end.
std::unique_ptr<KvLink> MakeCudaIpcKvLink(std::shared_ptr<CudaIpcRuntime> runtime, const CudaIpcKvLinkOptions& options,
                                          KvLink::Events events);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CUDA_IPC_CUDA_IPC_TRANSPORT_H_
