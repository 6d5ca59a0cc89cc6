// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_THREAD_POOL_H_
#define BATON_COMMON_BACKEND_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace baton::cpu {

// A fixed set of compute threads, the caller being one of them. ParallelFor hands out task numbers in order from one
// counter and returns when all are done; nothing is allocated. Idle threads spin for some tens of microseconds, then
// sleep in the kernel: several processes share the cores, and a long spin would take the time from them.
//
// Owner: one thread (the engine thread) calls ParallelFor; not reentrant.
class ThreadPool {
 public:
  // num_threads >= 1, the caller included.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread) for each task in [0, num_tasks), thread in [0, num_threads()); the caller is thread 0. Which
  // thread runs a task is not fixed. All writes of the tasks are visible on return.
  template <typename Fn>
  void ParallelFor(int64_t num_tasks, Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    Run(num_tasks, [](void* context, int64_t task, int thread) { (*static_cast<Plain*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using TaskFn = void (*)(void* context, int64_t task, int thread);
  void Run(int64_t num_tasks, TaskFn fn, void* context);
  void Drain(int thread);
  void WorkerLoop(int thread);
  void AwaitDone();

  std::vector<std::thread> workers_;
  // The job: written before `left_` publishes it, read only by a thread that has taken one of its tasks.
  TaskFn fn_ = nullptr;
  void* context_ = nullptr;
  uint32_t num_tasks_ = 0;
  // Upper half: the job's generation; lower half: tasks not yet taken. One word, so that a late thread cannot take a task
  // of a job with another's count.
  alignas(64) std::atomic<uint64_t> left_{0};
  alignas(64) std::atomic<uint32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_THREAD_POOL_H_
