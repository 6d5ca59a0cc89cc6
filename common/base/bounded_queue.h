// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_BOUNDED_QUEUE_H_
#define BATON_COMMON_BASE_BOUNDED_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace baton {

// Values between threads, first in first out, at most `capacity` of them. Thread-safe.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False, with `value` untouched, when the queue is full or closed: the caller decides what a refusal means.
  bool TryPush(T&& value) {
    {
      MutexLock lock(&mutex_);
      if (closed_ || values_.size() >= capacity_) return false;
      values_.push_back(std::move(value));
    }
    not_empty_.NotifyOne();
    return true;
  }

  // Pushes even when the queue is full. For messages that release something (a cancel, an end of call) and are bounded by
  // what was admitted before; refusing those would leak. False when closed.
  bool ForcePush(T&& value) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return false;
      values_.push_back(std::move(value));
    }
    not_empty_.NotifyOne();
    return true;
  }

  // The oldest value, or nothing when none came within `timeout` or the queue was closed and is empty.
  std::optional<T> Pop(absl::Duration timeout) {
    const MonotonicTime deadline = Clock::Real()->Now() + timeout;
    MutexLock lock(&mutex_);
    while (values_.empty() && !closed_) {
      const absl::Duration left = deadline - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) break;
      not_empty_.WaitFor(&mutex_, left);
    }
    return PopLocked();
  }

  std::optional<T> TryPop() {
    MutexLock lock(&mutex_);
    return PopLocked();
  }

  // Refuses further pushes and wakes the readers; what is queued can still be popped.
  void Close() {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
    }
    not_empty_.NotifyAll();
  }

  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }

  size_t size() const {
    MutexLock lock(&mutex_);
    return values_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  std::optional<T> PopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    return value;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar not_empty_;
  std::deque<T> values_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_BOUNDED_QUEUE_H_
