// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CUDA_IPC_COPY_STREAM_H_
#define BATON_COMMON_KV_TRANSFER_CUDA_IPC_COPY_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_runtime.h"

namespace baton {

// Copies of device memory, and their checksums, on a stream of their own, in order. Nothing waits for them but WaitFor: marks between them tell how far they
// have come. One thread.
class CopyStream {
 public:
  using Interrupted = std::function<absl::Status()>;

  // At most `max_marks` may be set and not reached.
  static absl::StatusOr<std::unique_ptr<CopyStream>> Create(std::shared_ptr<CudaIpcRuntime> runtime, int max_marks);
  // Everything has ended, or the process does.
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // Page-locked memory for the host's end of copies; freed with the stream.
  absl::StatusOr<uint8_t*> AllocateHost(size_t bytes);

  // Order a copy; the memory at both ends stays as it is until it has ended. UNAVAILABLE  what the driver says.
  absl::Status Within(CUdeviceptr to, CUdeviceptr from, size_t bytes);
  absl::Status ToDevice(CUdeviceptr to, const uint8_t* from, size_t bytes);
  absl::Status ToHost(uint8_t* to, CUdeviceptr from, size_t bytes);

  // Orders the checksums of a batch, which are there with the next mark.
  absl::Status Sum(cuda::DeviceChecksums& checksums);

  // Behind everything ordered so far.
  absl::Status Mark();
  uint64_t marks() const { return marks_; }
  // How many marks have been reached.
  absl::StatusOr<uint64_t> Reached();
  // Until `mark` of them have: OK, what `interrupted` says (asked at least every 20 ms), DEADLINE_EXCEEDED after `stall_timeout` in which
  // none was, or UNAVAILABLE.
  absl::Status WaitFor(uint64_t mark, absl::Duration stall_timeout, const Interrupted& interrupted);

 private:
  // Counts the marks that the stream has come to; outlives it.
  struct Signal {
    Mutex mutex;
    CondVar changed;
    uint64_t count ABSL_GUARDED_BY(mutex) = 0;
  };

  explicit CopyStream(std::shared_ptr<CudaIpcRuntime> runtime) : runtime_(std::move(runtime)) {}
  absl::Status Start(int max_marks);
  absl::Status Check(CUresult result, const char* doing) const;
  CUevent EventOf(uint64_t mark) const { return events_[static_cast<size_t>(mark % events_.size())]; }

  const std::shared_ptr<CudaIpcRuntime> runtime_;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;
  std::vector<void*> host_;
  uint64_t marks_ = 0, reached_ = 0;
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CUDA_IPC_COPY_STREAM_H_
