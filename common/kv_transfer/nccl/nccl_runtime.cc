// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/nccl/nccl_runtime.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/backend/cuda/cuda_device.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"

namespace baton {
namespace {

constexpr size_t kMaxUnused = 32;  // Of 4 MiB each, mostly.

}  // namespace

absl::StatusOr<std::shared_ptr<NcclRuntime>> NcclRuntime::Open(const NcclTransportOptions& options) {
  std::shared_ptr<NcclRuntime> runtime(new NcclRuntime(options));
  BATON_RETURN_IF_ERROR(runtime->Start());
  return runtime;
}

absl::Status NcclRuntime::Start() {
  BATON_ASSIGN_OR_RETURN(const cuda::CudaDevice device, cuda::FindCudaDevice(options_.cuda_driver, options_.ordinal));
  BATON_ASSIGN_OR_RETURN(cuda_, cuda::CudaApi::Load(options_.cuda_driver));
  BATON_ASSIGN_OR_RETURN(nccl_, cuda::NcclApi::Load(options_.nccl_library));
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(cuda_.cuDeviceGet(&device_, options_.ordinal), "cuDeviceGet"));
  // The one that the backend computes in, and the runtime inside NCCL uses.
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(cuda_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  BATON_RETURN_IF_ERROR(Bind());
  BATON_ASSIGN_OR_RETURN(checksum_kernel_, cuda::ChecksumKernel::Load(cuda_, device.compute_capability));
  return absl::OkStatus();
}

NcclRuntime::~NcclRuntime() {
  if (context_ == nullptr) return;
  MutexLock lock(&mutex_);
  if (Bind().ok()) {
    for (const Staging& staging : unused_) Free(staging);
    checksum_kernel_.reset();
  }
  cuda_.cuDevicePrimaryCtxRelease(device_);
}

absl::Status NcclRuntime::Bind() const { return cuda_.ToStatus(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

absl::Status NcclRuntime::Enter() {
  MutexLock lock(&mutex_);
  if (num_communicators_ >= options_.max_communicators) {
    return absl::ResourceExhaustedError(absl::StrCat("NCCL: ", num_communicators_, " communicators are open, no more than that"));
  }
  ++num_communicators_;
  return absl::OkStatus();
}

void NcclRuntime::Leave() {
  MutexLock lock(&mutex_);
  --num_communicators_;
}

absl::StatusOr<Staging> NcclRuntime::TakeStaging(size_t bytes) {
  {
    MutexLock lock(&mutex_);
    const auto fits = std::find_if(unused_.begin(), unused_.end(), [bytes](const Staging& staging) { return staging.bytes >= bytes; });
    if (fits != unused_.end()) {
      const Staging found = *fits;
      unused_.erase(fits);
      return found;
    }
  }
  BATON_RETURN_IF_ERROR(Bind());
  Staging staging{.bytes = bytes};
  const std::string doing = absl::StrFormat("NCCL staging of %d bytes", static_cast<int64_t>(bytes));
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(cuda_.cuMemAlloc(&staging.device, bytes), doing));
  void* host = nullptr;
  const absl::Status allocated = cuda_.ToStatus(cuda_.cuMemHostAlloc(&host, bytes, 0), doing);
  staging.host = static_cast<uint8_t*>(host);
  auto checksums = allocated.ok() ? cuda::DeviceChecksums::Create(checksum_kernel_.get()) : allocated;
  if (!checksums.ok()) {
    Free(staging);
    return checksums.status();
  }
  staging.checksums = checksums->release();
  return staging;
}

void NcclRuntime::GiveBack(const Staging& staging) {
  {
    MutexLock lock(&mutex_);
    if (unused_.size() < kMaxUnused) return unused_.push_back(staging);
  }
  if (Bind().ok()) Free(staging);
}

void NcclRuntime::Free(const Staging& staging) const {
  delete staging.checksums;
  cuda_.cuMemFree(staging.device);
  if (staging.host != nullptr) cuda_.cuMemFreeHost(staging.host);
}

namespace {

struct Closer {
  BoundedQueue<std::function<void()>> work{1 << 10};
  Thread thread{"nccl-close", [this] {
                  while (const auto next = work.Pop(absl::InfiniteDuration())) (*next)();
                }};
};

// Never destroyed: a call that does not return must not keep the process from ending.
Closer& TheCloser() {
  static auto* const closer = new Closer;
  return *closer;
}

}  // namespace

bool RunToClose(std::function<void()> work, absl::Duration patience) {
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mutex) = false;
  };
  auto done = std::make_shared<Done>();
  TheCloser().work.ForcePush([work = std::move(work), done] {
    work();
    MutexLock lock(&done->mutex);
    done->done = true;
    done->changed.NotifyAll();
  });
  const MonotonicTime deadline = Clock::Real()->Now() + patience;
  MutexLock lock(&done->mutex);
  while (!done->done) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    done->changed.WaitFor(&done->mutex, left);
  }
  return true;
}

}  // namespace baton
