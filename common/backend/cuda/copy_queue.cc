// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/copy_queue.h"

#include <utility>

namespace baton::cuda {

CopyQueue::~CopyQueue() {
  if (stream_ == nullptr || !context_->Bind().ok()) return;
  const CudaApi& api = context_->api();
  api.cuStreamSynchronize(stream_);
  for (const CUevent event : ended_) {
    if (event != nullptr) api.cuEventDestroy(event);
  }
  if (computed_ != nullptr) api.cuEventDestroy(computed_);
  api.cuStreamDestroy(stream_);
}

bool CopyQueue::Start() {
  if (const absl::Status bound = context_->Bind(); !bound.ok()) {
    context_->Fail(bound);
    return false;
  }
  if (stream_ != nullptr) return true;
  const CudaApi& api = context_->api();
  if (!context_->Check(api.cuEventCreate(&computed_, CU_EVENT_DISABLE_TIMING), "cuEventCreate")) return false;
  for (CUevent& event : ended_) {
    if (!context_->Check(api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate")) return false;
  }
  return context_->Check(api.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

CopyTicket CopyQueue::Order(std::span<const MemoryCopy> copies, Direction direction) {
  if (last_ - num_ended_ == kMaxOpen) Wait(num_ended_ + 1);
  const CopyTicket ticket = ++last_;
  if (!context_->status().ok() || !Start()) return ticket;
  const CudaApi& api = context_->api();
  // The stream itself, also in the middle of a pass that is recorded or done again: that has nothing to do with these.
  context_->Check(api.cuEventRecord(computed_, context_->stream()), "cuEventRecord");
  context_->Check(api.cuStreamWaitEvent(stream_, computed_, 0), "cuStreamWaitEvent");
  for (const MemoryCopy& copy : copies) {
    if (direction == Direction::kToHost) {
      context_->Check(api.cuMemcpyDtoHAsync(copy.to, reinterpret_cast<CUdeviceptr>(copy.from), copy.bytes, stream_), "cuMemcpyDtoHAsync");
    } else {
      context_->Check(api.cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(copy.to), copy.from, copy.bytes, stream_), "cuMemcpyHtoDAsync");
    }
  }
  context_->Check(api.cuEventRecord(EventOf(ticket), stream_), "cuEventRecord");
  return ticket;
}

bool CopyQueue::Ended(CopyTicket ticket) {
  while (num_ended_ < ticket && context_->status().ok() && context_->Bind().ok()) {
    const CUresult ready = context_->api().cuEventQuery(EventOf(num_ended_ + 1));
    if (ready == CUDA_ERROR_NOT_READY) return false;
    if (context_->Check(ready, "cuEventQuery")) ++num_ended_;
  }
  return true;
}

void CopyQueue::Wait(CopyTicket ticket) {
  if (Ended(ticket)) return;
  if (context_->Check(context_->api().cuEventSynchronize(EventOf(ticket)), "cuEventSynchronize")) num_ended_ = ticket;
}

}  // namespace baton::cuda
