// SPDX-License-Identifier: Apache-2.0
// For builds without NVIDIA's headers.
#include "common/base/logging.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"

namespace baton {

absl::StatusOr<std::shared_ptr<CudaIpcRuntime>> OpenCudaIpc(const CudaIpcOptions&) {
  return absl::FailedPreconditionError("this build has no CUDA");
}

absl::StatusOr<std::unique_ptr<KvReceiver>> StartCudaIpcKvReceiver(std::shared_ptr<CudaIpcRuntime>, absl::Duration, bool, KvReceiverOptions,
                                                                   LandingDirectory*, KvReceiverEvents) {
  return absl::FailedPreconditionError("this build has no CUDA");
}

std::unique_ptr<KvLink> MakeCudaIpcKvLink(std::shared_ptr<CudaIpcRuntime>, const CudaIpcKvLinkOptions& options, KvLink::Events) {
  BATON_CHECK(false) << "no KV link by cuda_ipc to " << options.address << ": this build has no CUDA";
  return nullptr;
}

}  // namespace baton
