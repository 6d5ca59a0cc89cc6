// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PREPARATION_POOL_H_
#define BATON_ROUTER_PREPARATION_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "router/preparation_queue.h"

namespace baton {

// The threads that read, render and tokenise requests, in PreparationQueue's order and within its budget. Thread-safe.
class PreparationPool {
 public:
  using Task = std::function<void()>;

  // Bytes of the budget, given back by the destructor. The pool outlives it.
  class Reservation {
   public:
    Reservation(PreparationPool* pool, int64_t bytes) : pool_(pool), bytes_(bytes) {}
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

   private:
    PreparationPool* const pool_;
    const int64_t bytes_;
  };
  using Held = std::shared_ptr<const Reservation>;

  explicit PreparationPool(const PreparationOptions& options);
  ~PreparationPool() { Stop(); }

  //   RESOURCE_EXHAUSTED  see PreparationQueue::Reserve.
  absl::StatusOr<Held> Reserve(int64_t bytes);
  // Runs `task` later; `bytes` say how long it takes. Keep the reservation in the task.
  //   RESOURCE_EXHAUSTED  too many wait.
  //   UNAVAILABLE         after Stop.
  absl::StatusOr<PreparationQueue::Id> Post(int64_t bytes, Task task);
  // Drops a task that does not run yet.
  void Cancel(PreparationQueue::Id id);
  // Runs what waits and ends the threads.
  void Stop();

  int64_t bytes_reserved() const;
  size_t num_waiting() const;

 private:
  void Run();
  void Release(int64_t bytes);

  mutable Mutex mutex_;
  CondVar changed_;
  PreparationQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<PreparationQueue::Id, Task> tasks_ ABSL_GUARDED_BY(mutex_);  // Those that wait.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace baton

#endif  // BATON_ROUTER_PREPARATION_POOL_H_
