// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CUDA_IPC_DEVICE_PEER_POOL_H_
#define BATON_COMMON_KV_TRANSFER_CUDA_IPC_DEVICE_PEER_POOL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_runtime.h"
#include "common/kv_transfer/stream/peer_pool.h"
#include "common/kv_transfer/stream/wire_format.h"

namespace baton {

// The receiver's pool on its device. Whole cells of `source`, where that is on a device, go from device to device; others straight from the
// host's memory, or, where the payload does not last, through page-locked memory. All are written whole: of the cell that is not filled to
// its end, the rest is zeros, which nobody reads.
//   INVALID_ARGUMENT, UNAVAILABLE  CudaIpcRuntime::Import's.
absl::StatusOr<std::unique_ptr<PeerPool>> OpenDevicePeerPool(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout,
                                                             const KvPool* source, const StreamHello& welcome);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CUDA_IPC_DEVICE_PEER_POOL_H_
