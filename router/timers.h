// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_TIMERS_H_
#define BATON_ROUTER_TIMERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

namespace baton {

// Calls back at given times, on one thread of its own. Callbacks must not block. Thread-safe.
class Timers {
 public:
  using Id = uint64_t;

  Timers();
  // Drops what is not due and waits for a running callback.
  ~Timers();

  // On the real monotonic clock. Never 0.
  Id Schedule(MonotonicTime at, std::function<void()> callback);
  // Does not wait: a callback that is about to run still may.
  void Cancel(Id id);
  // No callback runs after it. Called by the destructor too.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<MonotonicTime, Id>, std::function<void()>> pending_ ABSL_GUARDED_BY(mutex_);
  std::map<Id, MonotonicTime> times_ ABSL_GUARDED_BY(mutex_);
  Id next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  MonotonicTime sleeps_until_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();  // The thread, that nobody need wake for later ones.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_ROUTER_TIMERS_H_
