// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CUDA_IPC_DEVICE_PLACED_READER_H_
#define BATON_COMMON_KV_TRANSFER_CUDA_IPC_DEVICE_PLACED_READER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_runtime.h"
#include "common/kv_transfer/stream/placed_reader.h"

namespace baton {

// Of `pool`, which lies on the device and outlives the reader. Frames of whole cells are summed up there; of the others (the last cell of a
// prompt, less than DeviceChecksums::kLeastBytes) the bytes come to page-locked memory, which is as large as the largest of them so far.
absl::StatusOr<std::unique_ptr<PlacedReader>> OpenDevicePlacedReader(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout,
                                                                     const KvPool* pool);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CUDA_IPC_DEVICE_PLACED_READER_H_
