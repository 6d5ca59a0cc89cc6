// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_IPC_H_
#define BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_IPC_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace baton::cuda_sim {

// Device memory that several processes have: a memfd, which the process that opens it finds by the handle's process and descriptor, with a
// page behind the data in which those who have it open are written down. Wrong uses are findings beside their error. Thread-safe.
class SimIpc {
 public:
  using Find = std::function<void(const std::string&)>;  // Takes a finding.
  explicit SimIpc(Find find) : find_(std::move(find)) {}

  // Of an allocation [base, base + bytes), whose pages are its own: turns them into shared ones, once. Nothing is at work on it.
  CUresult Export(void* base, size_t bytes, CUipcMemHandle* handle);
  // It is being freed. Only its pages remain to be unmapped.
  void Forget(void* base);

  // `*fresh`: it was not open yet; its bytes.
  CUresult Open(const CUipcMemHandle& handle, unsigned flags, void** base, size_t* bytes, bool* fresh);
  // `unmap` is called before the pages go, when it is open no longer. Nothing is at work on it, but what the caller should have waited for.
  CUresult Close(void* base, const std::function<void()>& unmap);
  bool IsOpened(const void* base) const;

  // What work on memory that is shared holds until it is done; null for other memory.
  std::shared_ptr<void> Hold(const void* address) const;
  // Does a copy, with what a test ordered to happen to the next ones into shared memory.
  void Copy(void* to, const void* from, size_t bytes);

  // What cuda_sim.h sets, beside its own names. False: none of them.
  //   "no_ipc"           1: no memory can be exported to other processes
  //   "fail_ipc_open"    the n-th handle of another process cannot be opened here, as between GPUs that do not reach each other
  //   "stall_peer_copy", "kill_peer_copy", "flip_peer_copy"  the n-th copy into memory that was exported, or opened, does not happen
  //                      until this is set to 0 or reset; kills the process half way; changes a bit
  bool Set(const std::string& name, int64_t value);
  // "ipc_opens" of other processes' memory, "ipc_open" at this moment, "peer_copies" into memory that was exported or opened,
  // "stalled_peer_copies" that wait now; -1: no such name.
  int64_t count(const std::string& name) const;
  // As after Set of 0 for each: what stalls goes on.
  void Reset();
  // $BATON_CUDA_SIM_IPC_PLAN: a file of lines "name value", which the process takes away to which it happens. Copies count there into memory
  // that was opened only.
  void TakePlan(const char* path);

 private:
  struct Shared {
    size_t bytes = 0, mapped = 0;
    int fd = -1;
    uint64_t serial = 0;
    int64_t process = 0;  // That allocated it.
    int num_opens = 0;    // Here; 0 of an own one.
    void* table = nullptr;
    std::shared_ptr<std::atomic<int>> at_work = std::make_shared<std::atomic<int>>(0);
  };
  const Shared* FindLocked(const void* address) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Whether the failure that is named is due now.
  bool Due(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Find find_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<const void*, Shared> shared_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> due_ ABSL_GUARDED_BY(mutex_);
  std::string plan_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t opens_ ABSL_GUARDED_BY(mutex_) = 0, copies_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::cuda_sim

#endif  // BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_IPC_H_
