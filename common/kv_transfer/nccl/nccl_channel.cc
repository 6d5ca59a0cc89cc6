// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/nccl/nccl_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr size_t kSlotBytes = 4 << 20;
constexpr absl::Duration kLook = absl::Milliseconds(20);
constexpr absl::Duration kLookAtIssue = absl::Microseconds(200);  // NCCL tells nobody.
constexpr absl::Duration kFinalize = absl::Seconds(2);
constexpr absl::Duration kLeaveStream = absl::Seconds(2);
constexpr absl::Duration kClosePatience = absl::Seconds(3);

}  // namespace

NcclChannel::NcclChannel(std::shared_ptr<NcclRuntime> runtime, int rank, absl::Duration stall_timeout, int num_slots)
    : rank_(rank), stall_timeout_(stall_timeout), resources_(std::make_shared<Resources>()) {
  resources_->runtime = std::move(runtime);
  resources_->slots.resize(static_cast<size_t>(num_slots));
}

NcclChannel::~NcclChannel() { Close(/*orderly=*/false); }

// ---- Both ends.

absl::Status NcclChannel::Start(const ncclUniqueId& id) {
  NcclRuntime& runtime = *resources_->runtime;
  BATON_RETURN_IF_ERROR(runtime.Enter());
  resources_->entered = true;
  const cuda::CudaApi& cuda = runtime.cuda();
  BATON_RETURN_IF_ERROR(runtime.Bind());
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuStreamCreate(&resources_->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuStreamCreate(&resources_->copies, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  for (Slot& slot : resources_->slots) {
    for (CUevent* const event : {&slot.moved, &slot.copied}) {
      BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
    }
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // No call of it waits for the peer.
  const ncclResult_t result = runtime.nccl().ncclCommInitRankConfig(&resources_->comm, 2, id, rank_, &config);
  return runtime.nccl().ToStatus(result, nullptr, "ncclCommInitRankConfig");
}

absl::Status NcclChannel::Connect(const Interrupted& interrupted) {
  if (connected_) return absl::OkStatus();
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  BATON_RETURN_IF_ERROR(WaitUntil(
      [this]() -> absl::StatusOr<bool> {
        bool in_progress = false;
        BATON_RETURN_IF_ERROR(AsyncState(&in_progress));
        return !in_progress;
      },
      "the peer did not join the NCCL communicator", interrupted));
  connected_ = true;
  return absl::OkStatus();
}

absl::Status NcclChannel::AsyncState(bool* in_progress) const {
  const cuda::NcclApi& nccl = resources_->runtime->nccl();
  ncclResult_t state = ncclSuccess;
  BATON_RETURN_IF_ERROR(nccl.ToStatus(nccl.ncclCommGetAsyncError(resources_->comm, &state), resources_->comm, "ncclCommGetAsyncError"));
  *in_progress = state == ncclInProgress;
  return nccl.ToStatus(state, resources_->comm, "NCCL");
}

absl::Status NcclChannel::WaitUntil(const std::function<absl::StatusOr<bool>()>& done, const char* what,
                                    const Interrupted& interrupted) {
  Signal& signal = *resources_->signal;
  const MonotonicTime deadline = Clock::Real()->Now() + stall_timeout_;
  while (true) {
    uint64_t seen;
    {
      MutexLock lock(&signal.mutex);
      seen = signal.count;
    }
    BATON_ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) return absl::OkStatus();
    BATON_RETURN_IF_ERROR(interrupted());
    if (Clock::Real()->Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(what, " within ", absl::FormatDuration(stall_timeout_)));
    }
    MutexLock lock(&signal.mutex);
    if (signal.count == seen) signal.changed.WaitFor(&signal.mutex, connected_ && issuing_ < 0 ? kLook : kLookAtIssue);
  }
}

// ---- Slots.

absl::Status NcclChannel::Claim(int slot, size_t bytes, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(Wait(slot, interrupted));
  Staging& staging = resources_->slots[static_cast<size_t>(slot)].staging;
  if (staging.bytes < bytes) {
    if (staging.bytes > 0) resources_->runtime->GiveBack(std::exchange(staging, {}));
    BATON_ASSIGN_OR_RETURN(staging, resources_->runtime->TakeStaging(std::max(bytes, kSlotBytes)));
  }
  staging.checksums->Clear();
  return absl::OkStatus();
}

absl::Status NcclChannel::Copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  return cuda.ToStatus(cuda.cuMemcpyDtoDAsync(to, from, bytes, resources_->copies), "cuMemcpyDtoDAsync");
}

absl::Status NcclChannel::Upload(CUdeviceptr to, const uint8_t* from, size_t bytes) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  return cuda.ToStatus(cuda.cuMemcpyHtoDAsync(to, from, bytes, resources_->copies), "cuMemcpyHtoDAsync");
}

absl::Status NcclChannel::Sum(int slot) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  return staging(slot).checksums->Launch(resources_->copies);
}

absl::Status NcclChannel::MarkCopied(int slot) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  const Slot& marked = resources_->slots[static_cast<size_t>(slot)];
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuEventRecord(marked.copied, resources_->copies), "cuEventRecord"));
  return Tell(resources_->copies);
}

absl::StatusOr<bool> NcclChannel::Copied(int slot, bool wait, const Interrupted& interrupted) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  const CUevent copied = resources_->slots[static_cast<size_t>(slot)].copied;
  const auto reached = [&]() -> absl::StatusOr<bool> {
    BATON_RETURN_IF_ERROR(Advance());
    const CUresult ready = cuda.cuEventQuery(copied);
    if (ready == CUDA_ERROR_NOT_READY) return false;
    BATON_RETURN_IF_ERROR(cuda.ToStatus(ready, "cuEventQuery"));
    return true;
  };
  if (!wait) return reached();
  BATON_RETURN_IF_ERROR(WaitUntil(reached, "the GPU copied nothing", interrupted));
  return true;
}

absl::Status NcclChannel::Receive(int slot, size_t bytes, std::vector<std::pair<size_t, size_t>> to_host) {
  if (resources_ != nullptr) resources_->slots[static_cast<size_t>(slot)].to_host = std::move(to_host);
  return Enqueue(slot, bytes);
}

absl::Status NcclChannel::Enqueue(int slot, size_t bytes) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  Slot& queued = resources_->slots[static_cast<size_t>(slot)];
  BATON_CHECK(queued.state == Slot::State::kIdle && bytes > 0 && bytes <= queued.staging.bytes) << bytes << " of " << queued.staging.bytes;
  queued.state = Slot::State::kQueued;
  queued.bytes = bytes;
  queued_.push_back(slot);
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  return Advance();
}

absl::Status NcclChannel::Advance() {
  while (true) {
    if (issuing_ >= 0) {
      bool in_progress = false;
      BATON_RETURN_IF_ERROR(AsyncState(&in_progress));
      if (in_progress) return absl::OkStatus();
      BATON_RETURN_IF_ERROR(FinishIssue(resources_->slots[static_cast<size_t>(std::exchange(issuing_, -1))]));
    }
    if (queued_.empty()) return absl::OkStatus();
    issuing_ = queued_.front();
    queued_.pop_front();
    BATON_RETURN_IF_ERROR(Issue(resources_->slots[static_cast<size_t>(issuing_)]));
  }
}

// Slots come from the stream of copies, and go back to it: events, not the host, keep the order.
absl::Status NcclChannel::Issue(Slot& slot) {
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  const cuda::NcclApi& nccl = resources_->runtime->nccl();
  slot.state = Slot::State::kIssuing;
  void* const device = reinterpret_cast<void*>(slot.staging.device);
  // cudaStream_t is the driver's.
  if (rank_ == 0) {
    BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuStreamWaitEvent(resources_->stream, slot.copied, 0), "cuStreamWaitEvent"));
    return nccl.ToStatus(nccl.ncclSend(device, slot.bytes, ncclUint8, 1, resources_->comm, resources_->stream), resources_->comm, "ncclSend");
  }
  return nccl.ToStatus(nccl.ncclRecv(device, slot.bytes, ncclUint8, 0, resources_->comm, resources_->stream), resources_->comm, "ncclRecv");
}

absl::Status NcclChannel::FinishIssue(Slot& slot) {
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuEventRecord(slot.moved, resources_->stream), "cuEventRecord"));
  if (rank_ == 0) {
    slot.state = Slot::State::kBusy;
    return Tell(resources_->stream);
  }
  const CUstream copies = resources_->copies;
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuStreamWaitEvent(copies, slot.moved, 0), "cuStreamWaitEvent"));
  BATON_RETURN_IF_ERROR(slot.staging.checksums->Launch(copies));
  for (const auto& [offset, bytes] : slot.to_host) {
    BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuMemcpyDtoHAsync(slot.staging.host + offset, slot.staging.device + offset, bytes, copies), "cuMemcpyDtoHAsync"));
  }
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuEventRecord(slot.copied, copies), "cuEventRecord"));
  slot.state = Slot::State::kBusy;
  return Tell(copies);
}

// Where the GPU fails before that, the looks at events find out.
absl::Status NcclChannel::Tell(CUstream stream) {
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  auto signal = std::make_unique<std::shared_ptr<Signal>>(resources_->signal);
  const auto tell = [](void* argument) {
    const std::unique_ptr<std::shared_ptr<Signal>> told(static_cast<std::shared_ptr<Signal>*>(argument));
    MutexLock lock(&(*told)->mutex);
    ++(*told)->count;
    (*told)->changed.NotifyAll();
  };
  BATON_RETURN_IF_ERROR(cuda.ToStatus(cuda.cuLaunchHostFunc(stream, tell, signal.get()), "cuLaunchHostFunc"));
  signal.release();
  return absl::OkStatus();
}

absl::Status NcclChannel::WaitIssued(const Interrupted& interrupted) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  if (queued_.empty() && issuing_ < 0) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  return WaitUntil(
      [this]() -> absl::StatusOr<bool> {
        BATON_RETURN_IF_ERROR(Advance());
        return queued_.empty() && issuing_ < 0;
      },
      "NCCL took nothing", interrupted);
}

absl::Status NcclChannel::Wait(int slot, const Interrupted& interrupted) {
  if (resources_ == nullptr) return absl::UnavailableError("the NCCL channel is closed");
  Slot& waited = resources_->slots[static_cast<size_t>(slot)];
  if (waited.state == Slot::State::kIdle) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(resources_->runtime->Bind());
  const cuda::CudaApi& cuda = resources_->runtime->cuda();
  return WaitUntil(
      [&]() -> absl::StatusOr<bool> {
        BATON_RETURN_IF_ERROR(Advance());
        bool in_progress = false;
        BATON_RETURN_IF_ERROR(AsyncState(&in_progress));
        if (waited.state != Slot::State::kBusy) return false;
        const CUresult ready = cuda.cuEventQuery(rank_ == 0 ? waited.moved : waited.copied);
        if (ready == CUDA_ERROR_NOT_READY) return false;
        BATON_RETURN_IF_ERROR(cuda.ToStatus(ready, "cuEventQuery"));
        waited.state = Slot::State::kIdle;
        return true;
      },
      "NCCL moved nothing", interrupted);
}

// ---- The end.

void NcclChannel::Close(bool orderly) {
  if (resources_ == nullptr) return;
  std::shared_ptr<Resources> resources = std::exchange(resources_, nullptr);
  if (RunToClose([resources, orderly] { End(*resources, orderly); }, kClosePatience)) return;
  BATON_LOG(ERROR) << "an NCCL communicator does not end; it is left alone, with its memory";
}

// On the closing thread. What may still be written to is never freed.
void NcclChannel::End(Resources& resources, bool orderly) {
  NcclRuntime& runtime = *resources.runtime;
  const cuda::CudaApi& cuda = runtime.cuda();
  const cuda::NcclApi& nccl = runtime.nccl();
  Signal& signal = *resources.signal;
  // Looks until `done`; whether it came to that in time.
  const auto wait = [&signal](absl::Duration limit, const std::function<bool()>& done) {
    const MonotonicTime deadline = Clock::Real()->Now() + limit;
    while (!done()) {
      if (Clock::Real()->Now() >= deadline) return false;
      MutexLock lock(&signal.mutex);
      signal.changed.WaitFor(&signal.mutex, absl::Milliseconds(1));
    }
    return true;
  };
  if (!runtime.Bind().ok()) return;
  if (resources.comm != nullptr) {
    const auto finalized = [&] {
      ncclResult_t state = ncclSuccess;
      return nccl.ncclCommGetAsyncError(resources.comm, &state) != ncclSuccess || state != ncclInProgress;
    };
    const auto started = [&] {
      const ncclResult_t result = nccl.ncclCommFinalize(resources.comm);
      return result == ncclSuccess || result == ncclInProgress;
    };
    const bool ended = orderly && started() && wait(kFinalize, finalized) && nccl.ncclCommDestroy(resources.comm) == ncclSuccess;
    if (!ended) nccl.ncclCommAbort(resources.comm);
  }
  if (resources.entered) runtime.Leave();
  // The copies wait for NCCL's stream, not the other way round any more.
  for (const CUstream stream : {resources.stream, resources.copies}) {
    if (stream == nullptr || wait(kLeaveStream, [&] { return cuda.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY; })) continue;
    BATON_LOG(ERROR) << "NCCL: work does not leave its stream after the communicator's end";
    return;
  }
  for (Slot& slot : resources.slots) {
    if (slot.staging.bytes > 0) runtime.GiveBack(slot.staging);
    for (const CUevent event : {slot.moved, slot.copied}) {
      if (event != nullptr) cuda.cuEventDestroy(event);
    }
  }
  for (const CUstream stream : {resources.stream, resources.copies}) {
    if (stream != nullptr) cuda.cuStreamDestroy(stream);
  }
}

}  // namespace baton
