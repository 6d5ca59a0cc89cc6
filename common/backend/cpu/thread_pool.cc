// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <limits>

#include "common/base/logging.h"

namespace baton::cpu {
namespace {

// Longer than the gap between two operations of a forward pass, shorter than a scheduler's time slice by far.
constexpr std::chrono::microseconds kSpin{30};

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// True as soon as `ready` is, false after the spin time.
template <typename Ready>
bool SpinUntil(Ready ready) {
  if (ready()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  BATON_CHECK(num_threads >= 1);
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  FutexWake(&generation_, std::numeric_limits<int>::max());
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t num_tasks, TaskFn fn, void* context) {
  BATON_CHECK(num_tasks >= 0 && num_tasks <= std::numeric_limits<int32_t>::max());
  if (workers_.empty() || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(context, task, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  num_tasks_ = static_cast<uint32_t>(num_tasks);
  unfinished_.store(num_tasks_, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  left_.store((static_cast<uint64_t>(generation) << 32) | num_tasks_, std::memory_order_release);
  // Sequentially consistent with a worker's "I sleep, is there a job?": one of the two sees the other.
  generation_.store(generation);
  if (sleepers_.load() > 0) FutexWake(&generation_, std::numeric_limits<int>::max());
  Drain(0);
  AwaitDone();
}

void ThreadPool::Drain(int thread) {
  uint64_t left = left_.load(std::memory_order_acquire);
  while ((left & 0xffffffffu) != 0) {
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The job cannot end before this task has.
    fn_(context_, num_tasks_ - static_cast<uint32_t>(left), thread);
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) FutexWake(&unfinished_, 1);
    left = left_.load(std::memory_order_acquire);
  }
}

void ThreadPool::AwaitDone() {
  if (SpinUntil([this] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  caller_sleeps_.store(true);
  for (uint32_t n = unfinished_.load(); n != 0; n = unfinished_.load()) FutexWait(&unfinished_, n);
  caller_sleeps_.store(false);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool spun = SpinUntil([this, seen] { return generation_.load(std::memory_order_acquire) != seen; });
    if (!spun) {
      sleepers_.fetch_add(1);
      while (generation_.load() == seen) FutexWait(&generation_, seen);
      sleepers_.fetch_sub(1);
    }
    seen = generation_.load(std::memory_order_acquire);
    Drain(thread);
  }
}

}  // namespace baton::cpu
