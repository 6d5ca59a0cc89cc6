// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_NCCL_NCCL_CHANNEL_H_
#define BATON_COMMON_KV_TRANSFER_NCCL_NCCL_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/nccl/nccl_runtime.h"

namespace baton {

// One end of a communicator of two ranks: slots, each of page-locked memory and as much of the GPU, through which everything goes, in the
// order asked for, and two streams: NCCL works on one, and what is copied between slots and blocks, and its checksums, have the other,
// so that neither waits for the other but where an event says so. Rank 0 sends and rank 1 receives. NCCL knows no memory but slots: what it
// has been told to do cannot be taken back, so that it is never told of a block.
//
// One thread. Calls that wait are PayloadWriter's in how they end.
class NcclChannel {
 public:
  using Interrupted = std::function<absl::Status()>;

  NcclChannel(std::shared_ptr<NcclRuntime> runtime, int rank, absl::Duration stall_timeout, int num_slots);
  // As Close(false).
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  // Begins to make the communicator; Connect waits for both ends.
  absl::Status Start(const ncclUniqueId& id);
  absl::Status Connect(const Interrupted& interrupted);

  // Memory of the slot, at least `bytes` (1 to what the GPU has), once nothing uses it any more; its checksums are cleared.
  absl::Status Claim(int slot, size_t bytes, const Interrupted& interrupted);
  const Staging& staging(int slot) const { return resources_->slots[static_cast<size_t>(slot)].staging; }
  // Orders a copy on the device, or to it, which neither end of may change before Copied says so.
  absl::Status Copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
  absl::Status Upload(CUdeviceptr to, const uint8_t* from, size_t bytes);
  // Orders the slot's checksums, if there are any, behind all copies; Copied tells how far that has come.
  absl::Status Sum(int slot);
  // Marks the end of what was ordered, for Copied: whether it has been reached, or (`wait`) until it is.
  absl::Status MarkCopied(int slot);
  absl::StatusOr<bool> Copied(int slot, bool wait, const Interrupted& interrupted);

  // Sends the first `bytes` of a slot, after everything asked for before, and behind the slot's mark. Does not wait.
  absl::Status Send(int slot, size_t bytes) { return Enqueue(slot, bytes); }
  // Receives so many into it, after everything asked for before; then its checksums are made, and `to_host` (offset and length) is brought
  // to its page-locked memory. Does not wait.
  absl::Status Receive(int slot, size_t bytes, std::vector<std::pair<size_t, size_t>> to_host);
  // Until everything asked for is NCCL's to do.
  absl::Status WaitIssued(const Interrupted& interrupted);
  // Until the slot's memory is the caller's again: it has left, or what was received lies in it.
  absl::Status Wait(int slot, const Interrupted& interrupted);

  // Ends the communicator: finalizes and destroys it when `orderly`, aborts it else. It waits a few seconds at most; what has not ended
  // by then is left to itself, with its memory. Idempotent.
  void Close(bool orderly);

 private:
  // Counts what has come to its end on the stream.
  struct Signal {
    Mutex mutex;
    CondVar changed;
    uint64_t count ABSL_GUARDED_BY(mutex) = 0;
  };
  struct Slot {
    enum class State { kIdle, kQueued, kIssuing, kBusy } state = State::kIdle;
    Staging staging;
    size_t bytes = 0;  // That it was queued with.
    std::vector<std::pair<size_t, size_t>> to_host;
    CUevent moved = nullptr;   // By NCCL.
    CUevent copied = nullptr;  // On the stream of copies.
  };
  // What must be kept while the GPU or NCCL may use it.
  struct Resources {
    std::shared_ptr<NcclRuntime> runtime;
    bool entered = false;
    ncclComm_t comm = nullptr;
    CUstream stream = nullptr, copies = nullptr;
    std::vector<Slot> slots;
    std::shared_ptr<Signal> signal = std::make_shared<Signal>();
  };

  absl::Status Enqueue(int slot, size_t bytes);
  // Gives NCCL what it can take now.
  absl::Status Advance();
  absl::Status Issue(Slot& slot);
  // NCCL has ordered it on the stream.
  absl::Status FinishIssue(Slot& slot);
  // Whoever waits is told when the stream has come so far.
  absl::Status Tell(CUstream stream);
  // OK: done, or (*in_progress) not yet.
  absl::Status AsyncState(bool* in_progress) const;
  // Waits until `done`, which says whether it is.
  absl::Status WaitUntil(const std::function<absl::StatusOr<bool>()>& done, const char* what, const Interrupted& interrupted);
  static void End(Resources& resources, bool orderly);

  const int rank_;
  const absl::Duration stall_timeout_;
  std::shared_ptr<Resources> resources_;  // Null after Close.
  bool connected_ = false;
  std::deque<int> queued_;
  int issuing_ = -1;  // Slot; -1: none.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_NCCL_NCCL_CHANNEL_H_
