// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_NCCL_NCCL_RUNTIME_H_
#define BATON_COMMON_KV_TRANSFER_NCCL_NCCL_RUNTIME_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/device_checksums.h"
#include "common/backend/cuda/nccl_api.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/nccl/nccl_transport.h"

namespace baton {

// Page-locked memory and as much of the GPU, and a batch of checksums of what lies there. The runtime's to free: what may still be in use is
// not given back.
struct Staging {
  uint8_t* host = nullptr;
  CUdeviceptr device = 0;
  size_t bytes = 0;
  cuda::DeviceChecksums* checksums = nullptr;
};

// The driver, NCCL and the primary context of one GPU. Thread-safe.
class NcclRuntime {
 public:
  // As OpenNccl.
  static absl::StatusOr<std::shared_ptr<NcclRuntime>> Open(const NcclTransportOptions& options);
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  const cuda::CudaApi& cuda() const { return cuda_; }
  const cuda::NcclApi& nccl() const { return nccl_; }
  // Makes the context the calling thread's: before any other call.
  absl::Status Bind() const;

  // One more communicator, until Leave. RESOURCE_EXHAUSTED names the bound.
  absl::Status Enter();
  void Leave();

  // At least `bytes`. What was given back is given out again: to free memory is to wait for all that the GPU does, and a communicator
  // that has stalled does something until it is aborted. RESOURCE_EXHAUSTED names the size.
  absl::StatusOr<Staging> TakeStaging(size_t bytes);
  // Of which nothing is under way any more.
  void GiveBack(const Staging& staging);

 private:
  explicit NcclRuntime(const NcclTransportOptions& options) : options_(options) {}
  absl::Status Start();
  void Free(const Staging& staging) const;

  const NcclTransportOptions options_;
  cuda::CudaApi cuda_;
  cuda::NcclApi nccl_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::unique_ptr<cuda::ChecksumKernel> checksum_kernel_;
  mutable Mutex mutex_;
  int num_communicators_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Staging> unused_ ABSL_GUARDED_BY(mutex_);
};

// Runs `work` on the process's closing thread, and waits for its end at most `patience`; then it goes on without anybody's waiting.
// False: it has not ended. What a library does to end a communicator may take for ever, and nobody's deadline hangs on it.
bool RunToClose(std::function<void()> work, absl::Duration patience);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_NCCL_NCCL_RUNTIME_H_
