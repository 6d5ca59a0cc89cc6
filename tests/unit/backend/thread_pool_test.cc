// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace baton::cpu {
namespace {

TEST(ThreadPoolTest, RunsEachTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<size_t>(n), 0);  // Not atomic: a sanitizer would see a task run twice.
      pool.ParallelFor(n, [&](int64_t task, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        ++runs[static_cast<size_t>(task)];
      });
      for (int r : runs) ASSERT_EQ(r, 1);
    }
  }
}

// Many short jobs in a row: a late thread must never touch a job that is over, nor lose one.
TEST(ThreadPoolTest, ManyShortJobs) {
  ThreadPool pool(3);
  int64_t total = 0;
  for (int job = 0; job < 20000; ++job) {
    const int64_t n = job % 5;
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(n, [&sum, job](int64_t task, int) { sum.fetch_add(task + job); });
    ASSERT_EQ(sum.load(), n * job + n * (n - 1) / 2);
    total += sum.load();
  }
  EXPECT_GT(total, 0);
}

// Work of one thread is seen by the tasks of the next job on another.
TEST(ThreadPoolTest, JobsAreOrdered) {
  ThreadPool pool(4);
  std::vector<int64_t> x(64, 1);
  for (int job = 0; job < 500; ++job) {
    pool.ParallelFor(64, [&](int64_t i, int) { x[static_cast<size_t>(i)] += 1; });
    pool.ParallelFor(32, [&](int64_t i, int) {
      std::swap(x[static_cast<size_t>(i)], x[static_cast<size_t>(63 - i)]);
    });
  }
  for (int64_t v : x) EXPECT_EQ(v, 501);
}

TEST(ThreadPoolTest, IdleThreadsSleepAndWake) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> done{0};
    // Each waits for the other: both threads must take part, awake or asleep before.
    pool.ParallelFor(2, [&](int64_t, int) {
      done.fetch_add(1);
      while (done.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(done.load(), 2);
  }
}

}  // namespace
}  // namespace baton::cpu
