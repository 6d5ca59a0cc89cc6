// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/cuda_ipc/copy_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<CopyStream>> CopyStream::Create(std::shared_ptr<CudaIpcRuntime> runtime, int max_marks) {
  std::unique_ptr<CopyStream> stream(new CopyStream(std::move(runtime)));
  BATON_RETURN_IF_ERROR(stream->Start(max_marks));
  return stream;
}

absl::Status CopyStream::Start(int max_marks) {
  const cuda::CudaApi& cuda = runtime_->cuda();
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  BATON_RETURN_IF_ERROR(Check(cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  for (int i = 0; i < max_marks; ++i) {
    CUevent event = nullptr;
    BATON_RETURN_IF_ERROR(Check(cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
    events_.push_back(event);
  }
  return absl::OkStatus();
}

CopyStream::~CopyStream() {
  if (!runtime_->Bind().ok()) return;
  const cuda::CudaApi& cuda = runtime_->cuda();
  for (CUevent event : events_) cuda.cuEventDestroy(event);
  if (stream_ != nullptr) cuda.cuStreamDestroy(stream_);
  for (void* host : host_) cuda.cuMemFreeHost(host);
}

// INTERNAL is for what is wrong with a frame.
absl::Status CopyStream::Check(CUresult result, const char* doing) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(runtime_->cuda().ToStatus(result, doing).message());
}

absl::StatusOr<uint8_t*> CopyStream::AllocateHost(size_t bytes) {
  void* memory = nullptr;
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  BATON_RETURN_IF_ERROR(Check(runtime_->cuda().cuMemHostAlloc(&memory, bytes, 0), "page-locked memory for KV"));
  host_.push_back(memory);
  return static_cast<uint8_t*>(memory);
}

absl::Status CopyStream::Within(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  return Check(runtime_->cuda().cuMemcpyDtoDAsync(to, from, bytes, stream_), "cuMemcpyDtoDAsync");
}

absl::Status CopyStream::ToDevice(CUdeviceptr to, const uint8_t* from, size_t bytes) {
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  return Check(runtime_->cuda().cuMemcpyHtoDAsync(to, from, bytes, stream_), "cuMemcpyHtoDAsync");
}

absl::Status CopyStream::ToHost(uint8_t* to, CUdeviceptr from, size_t bytes) {
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  return Check(runtime_->cuda().cuMemcpyDtoHAsync(to, from, bytes, stream_), "cuMemcpyDtoHAsync");
}

absl::Status CopyStream::Sum(cuda::DeviceChecksums& checksums) {
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  const absl::Status launched = checksums.Launch(stream_);
  return launched.ok() ? launched : absl::UnavailableError(launched.message());
}

absl::Status CopyStream::Mark() {
  BATON_CHECK(marks_ - reached_ < events_.size()) << marks_ << " marks, " << reached_ << " reached";
  const cuda::CudaApi& cuda = runtime_->cuda();
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  BATON_RETURN_IF_ERROR(Check(cuda.cuEventRecord(EventOf(marks_), stream_), "cuEventRecord"));
  ++marks_;
  // Whoever waits is told; where the GPU fails before that, the looks at the event find out.
  auto signal = std::make_unique<std::shared_ptr<Signal>>(signal_);
  const auto tell = [](void* argument) {
    const std::unique_ptr<std::shared_ptr<Signal>> told(static_cast<std::shared_ptr<Signal>*>(argument));
    MutexLock lock(&(*told)->mutex);
    ++(*told)->count;
    (*told)->changed.NotifyAll();
  };
  BATON_RETURN_IF_ERROR(Check(cuda.cuLaunchHostFunc(stream_, tell, signal.get()), "cuLaunchHostFunc"));
  signal.release();
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CopyStream::Reached() {
  if (reached_ == marks_) return reached_;
  BATON_RETURN_IF_ERROR(runtime_->Bind());
  for (; reached_ < marks_; ++reached_) {
    const CUresult ready = runtime_->cuda().cuEventQuery(EventOf(reached_));
    if (ready == CUDA_ERROR_NOT_READY) break;
    BATON_RETURN_IF_ERROR(Check(ready, "cuEventQuery"));
  }
  return reached_;
}

absl::Status CopyStream::WaitFor(uint64_t mark, absl::Duration stall_timeout, const Interrupted& interrupted) {
  MonotonicTime deadline = Clock::Real()->Now() + stall_timeout;
  while (true) {
    uint64_t seen;
    {
      MutexLock lock(&signal_->mutex);
      seen = signal_->count;
    }
    const uint64_t before = reached_;
    BATON_ASSIGN_OR_RETURN(const uint64_t reached, Reached());
    if (reached >= mark) return absl::OkStatus();
    BATON_RETURN_IF_ERROR(interrupted());
    const MonotonicTime now = Clock::Real()->Now();
    if (reached > before) deadline = now + stall_timeout;
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the GPU copied nothing within ", absl::FormatDuration(stall_timeout)));
    }
    MutexLock lock(&signal_->mutex);
    if (signal_->count == seen) signal_->changed.WaitFor(&signal_->mutex, kLook);
  }
}

}  // namespace baton
