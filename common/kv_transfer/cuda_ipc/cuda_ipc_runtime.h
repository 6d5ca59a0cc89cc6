// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CUDA_IPC_CUDA_IPC_RUNTIME_H_
#define BATON_COMMON_KV_TRANSFER_CUDA_IPC_CUDA_IPC_RUNTIME_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/cuda_ipc_api.h"
#include "common/backend/cuda/device_checksums.h"
#include "common/base/mutex.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"

namespace baton {

// Where a pool's cells begin on the device; 0: it is the host's.
CUdeviceptr DeviceAddressOf(const KvPool& pool);

// Memory of another process, or of this one.
struct PeerMemory {
  CUdeviceptr address = 0;
  bool opened = false;  // By the driver, so that it must be closed.
};

// The driver and the primary context of one GPU. Thread-safe.
class CudaIpcRuntime {
 public:
  // As OpenCudaIpc.
  static absl::StatusOr<std::shared_ptr<CudaIpcRuntime>> Open(const CudaIpcOptions& options);
  ~CudaIpcRuntime();
  CudaIpcRuntime(const CudaIpcRuntime&) = delete;
  CudaIpcRuntime& operator=(const CudaIpcRuntime&) = delete;

  const cuda::CudaApi& cuda() const { return cuda_; }
  // Makes the context the calling thread's: before any other call.
  absl::Status Bind() const;

  // By what other processes open the pool's memory on the device.
  //   FAILED_PRECONDITION  it is the host's; else what the driver says.
  absl::StatusOr<std::string> Export(const KvPool& pool) const;
  // Opens what was exported, of which `bytes` will be used. A process has its own memory already, and the driver opens it no second time.
  //   INVALID_ARGUMENT  that is nothing exported, or smaller. UNAVAILABLE  the driver does not open it here.
  absl::StatusOr<PeerMemory> Import(absl::string_view exported, size_t bytes) const;
  void Close(const PeerMemory& memory) const;

  // For one batch of checksums after another, and back when nothing of it is under way: to free it would be to wait for all that the GPU does.
  //   UNAVAILABLE  what the driver says.
  absl::StatusOr<std::unique_ptr<cuda::DeviceChecksums>> TakeChecksums();
  void GiveBack(std::unique_ptr<cuda::DeviceChecksums> checksums);

  // What was given up and may still be at work: `try_end` says whether it has ended.
  void LeaveBehind(std::function<bool()> try_end);
  // Whether everything left behind has ended.
  bool AllEnded();

 private:
  explicit CudaIpcRuntime(const CudaIpcOptions& options) : options_(options) {}
  absl::Status Start();

  const CudaIpcOptions options_;
  cuda::CudaApi cuda_;
  cuda::CudaIpcApi ipc_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::unique_ptr<cuda::ChecksumKernel> checksum_kernel_;
  Mutex mutex_;
  std::vector<std::unique_ptr<cuda::DeviceChecksums>> unused_checksums_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<bool()>> left_behind_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CUDA_IPC_CUDA_IPC_RUNTIME_H_
