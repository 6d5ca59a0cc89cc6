// SPDX-License-Identifier: Apache-2.0
#include "common/base/bounded_queue.h"

#include <memory>
#include <vector>

#include "common/base/thread.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheValue) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(queue.ForcePush(std::move(second)));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(**queue.TryPop(), 1);
  EXPECT_EQ(**queue.Pop(absl::ZeroDuration()), 2);
  EXPECT_FALSE(queue.TryPop().has_value());
  EXPECT_FALSE(queue.Pop(absl::Milliseconds(1)).has_value());
}

TEST(BoundedQueue, CloseWakesReadersAfterTheLastValue) {
  BoundedQueue<int> queue(4);
  std::vector<int> read;
  Thread reader("reader", [&] {
    while (std::optional<int> value = queue.Pop(absl::Seconds(30))) read.push_back(*value);
  });
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_FALSE(queue.ForcePush(3));
  reader.Join();
  EXPECT_EQ(read, (std::vector<int>{1, 2}));
}

TEST(BoundedQueue, ManyWritersLoseNothing) {
  BoundedQueue<int> queue(8);
  std::vector<Thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back("writer", [&] {
      for (int i = 1; i <= 1000; ++i) {
        int value = i;
        while (!queue.TryPush(std::move(value))) std::this_thread::yield();
      }
    });
  }
  int64_t sum = 0;
  for (int i = 0; i < 4000; ++i) sum += queue.Pop(absl::Seconds(30)).value_or(-1000000);
  EXPECT_EQ(sum, 4 * 1000 * 1001 / 2);
}

}  // namespace
}  // namespace baton
