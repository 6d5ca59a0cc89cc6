// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_STRAND_H_
#define BATON_COMMON_BASE_STRAND_H_

#include <deque>
#include <functional>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace baton {

// Runs tasks one at a time, in order, on the threads that bring them: a task posted while another runs is left to that
// thread, else it runs before Post returns. So what the tasks share needs no lock, and a token takes no extra thread
// switch. Tasks must not block, and nobody may call Post while holding a lock that a task takes.
class Strand {
 public:
  using Task = std::function<void()>;

  // A task that finds nobody running is never stored: most come so, one for each token.
  template <class Callable>
  void Post(Callable&& task) {
    {
      MutexLock lock(&mutex_);
      if (running_) {
        tasks_.push_back(Task(std::forward<Callable>(task)));
        return;
      }
      running_ = true;
    }
    {
      std::decay_t<Callable> first(std::forward<Callable>(task));  // What it holds is let go of when it has run.
      first();
    }
    RunQueued();
  }

 private:
  void RunQueued() {
    for (;;) {
      Task next;
      {
        MutexLock lock(&mutex_);
        if (tasks_.empty()) {
          running_ = false;
          return;
        }
        next = std::move(tasks_.front());
        tasks_.pop_front();
      }
      next();
    }
  }

  Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_STRAND_H_
