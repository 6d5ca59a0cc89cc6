// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_MUTEX_H_
#define BATON_COMMON_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace baton {

// std::mutex with clang's lock annotations. Debian's absl::Mutex is not instrumented, so ThreadSanitizer reports correct
// uses of it as races; std::mutex is clean.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A condition variable over Mutex. There is no wait without a deadline: every wait in Baton has one.
class CondVar {
 public:
  // Waits at most `timeout` for a notification; wakes spuriously like any condition variable. Returns false when the time
  // is up. The caller holds `mutex`.
  bool WaitFor(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const auto result = cv_.wait_until(lock, std::chrono::steady_clock::now() + Bounded(timeout));
    lock.release();
    return result == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  // An hour at most, so that infinite durations cannot overflow the clock's range.
  static std::chrono::nanoseconds Bounded(absl::Duration timeout) {
    if (timeout > absl::Hours(1)) timeout = absl::Hours(1);
    if (timeout < absl::ZeroDuration()) timeout = absl::ZeroDuration();
    return absl::ToChronoNanoseconds(timeout);
  }
  std::condition_variable cv_;
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_MUTEX_H_
