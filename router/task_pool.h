// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_TASK_POOL_H_
#define BATON_ROUTER_TASK_POOL_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/base/thread.h"

namespace baton {

// A few threads, or one, for what does not belong on the thread that brings it. Thread-safe.
class TaskPool {
 public:
  TaskPool(const std::string& name, int num_threads, size_t capacity) : tasks_(capacity) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back(name, [this] { Run(); });
    }
  }
  ~TaskPool() { Stop(); }

  // False when `capacity` tasks wait already, or after Stop.
  bool TryPost(std::function<void()> task) { return tasks_.TryPush(std::move(task)); }
  // Past the bound: for work that is bounded by what was admitted before. False after Stop.
  bool Post(std::function<void()> task) { return tasks_.ForcePush(std::move(task)); }
  // Runs what is queued and ends the threads.
  void Stop() {
    tasks_.Close();
    for (Thread& thread : threads_) thread.Join();
  }

 private:
  void Run() {
    for (;;) {
      auto task = tasks_.Pop(absl::Minutes(1));
      if (task.has_value()) {
        (*task)();
      } else if (tasks_.closed()) {
        return;
      }
    }
  }

  BoundedQueue<std::function<void()>> tasks_;
  std::vector<Thread> threads_;
};

}  // namespace baton

#endif  // BATON_ROUTER_TASK_POOL_H_
