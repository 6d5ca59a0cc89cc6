// SPDX-License-Identifier: Apache-2.0
#include "router/preparation_pool.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace baton {

PreparationPool::Reservation::~Reservation() { pool_->Release(bytes_); }

PreparationPool::PreparationPool(const PreparationOptions& options) : queue_(options) {
  for (int i = 0; i < options.num_threads; ++i) {
    threads_.emplace_back("prepare", [this] { Run(); });
  }
}

absl::StatusOr<PreparationPool::Held> PreparationPool::Reserve(int64_t bytes) {
  {
    MutexLock lock(&mutex_);
    BATON_RETURN_IF_ERROR(queue_.Reserve(bytes));
  }
  return std::make_shared<const Reservation>(this, bytes);
}

absl::StatusOr<PreparationQueue::Id> PreparationPool::Post(int64_t bytes, Task task) {
  PreparationQueue::Id id = 0;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::UnavailableError("router is shutting down");
    BATON_ASSIGN_OR_RETURN(id, queue_.Push(bytes, Clock::Real()->Now()));
    tasks_.emplace(id, std::move(task));
  }
  changed_.NotifyOne();
  return id;
}

void PreparationPool::Cancel(PreparationQueue::Id id) {
  Task dropped;  // Destroyed without the lock: what it holds may come back here.
  MutexLock lock(&mutex_);
  if (!queue_.Remove(id)) return;
  const auto it = tasks_.find(id);
  dropped = std::move(it->second);
  tasks_.erase(it);
}

void PreparationPool::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  for (Thread& thread : threads_) thread.Join();
}

int64_t PreparationPool::bytes_reserved() const {
  MutexLock lock(&mutex_);
  return queue_.bytes_reserved();
}

size_t PreparationPool::num_waiting() const {
  MutexLock lock(&mutex_);
  return queue_.num_waiting();
}

void PreparationPool::Release(int64_t bytes) {
  MutexLock lock(&mutex_);
  queue_.Release(bytes);
}

void PreparationPool::Run() {
  for (;;) {
    PreparationQueue::Id id = 0;
    Task task;
    {
      MutexLock lock(&mutex_);
      std::optional<PreparationQueue::Id> next;
      while (!(next = queue_.Pop(Clock::Real()->Now())).has_value()) {
        if (stopped_ && queue_.num_waiting() == 0) return;
        changed_.WaitFor(&mutex_, absl::Minutes(1));
      }
      id = *next;
      const auto it = tasks_.find(id);
      task = std::move(it->second);
      tasks_.erase(it);
    }
    task();
    task = nullptr;  // What it holds goes before the next one is taken, and without the lock.
    {
      MutexLock lock(&mutex_);
      queue_.Finish(id);
    }
    changed_.NotifyOne();  // A long one may have waited for this to end.
  }
}

}  // namespace baton
