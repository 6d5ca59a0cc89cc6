// SPDX-License-Identifier: Apache-2.0
#include "router/preparation_queue.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/status_details.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr PreparationOptions kOptions = {
    .max_bytes = 1000, .max_waiting = 8, .num_threads = 2, .long_bytes = 100, .patience = absl::Seconds(2)};

TEST(PreparationQueueTest, TheBudgetIsABoundAndIsGivenBack) {
  PreparationQueue queue(kOptions);
  EXPECT_TRUE(queue.Reserve(600).ok());
  const absl::Status refused = queue.Reserve(401);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("request of 401 bytes: 600 bytes of others are being prepared, and the bound is 1000 bytes together"));
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_TRUE(queue.Reserve(400).ok());
  EXPECT_FALSE(queue.Reserve(1).ok());
  queue.Release(600);
  EXPECT_TRUE(queue.Reserve(600).ok());
  EXPECT_EQ(queue.bytes_reserved(), 1000);
}

TEST(PreparationQueueTest, WaitersAreBounded) {
  PreparationQueue queue(kOptions);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(queue.Push(1, absl::ZeroDuration()).ok());
  const auto refused = queue.Push(1, absl::ZeroDuration());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(refused.status()).has_value());
}

TEST(PreparationQueueTest, ShortOnesFirst) {
  PreparationQueue queue(kOptions);
  const auto now = absl::ZeroDuration();
  const auto giant = *queue.Push(500, now), middle = *queue.Push(50, now), small = *queue.Push(5, now), same = *queue.Push(5, now);
  for (const auto expected : {small, same, middle, giant}) EXPECT_EQ(queue.Pop(now), expected);
  EXPECT_EQ(queue.Pop(now), std::nullopt);
}

TEST(PreparationQueueTest, AThreadIsKeptFreeOfLongOnes) {
  PreparationQueue queue(kOptions);
  const auto now = absl::ZeroDuration();
  const auto first = *queue.Push(500, now), second = *queue.Push(500, now);
  EXPECT_EQ(queue.Pop(now), first);
  EXPECT_EQ(queue.Pop(now + absl::Hours(1)), std::nullopt);  // Whatever it has waited.
  const auto small = *queue.Push(5, now);
  EXPECT_EQ(queue.Pop(now), small);
  queue.Finish(small);
  EXPECT_EQ(queue.Pop(now), std::nullopt);
  queue.Finish(first);
  EXPECT_EQ(queue.Pop(now), second);
}

TEST(PreparationQueueTest, LongOnesAreFewerThanTheirBound) {
  PreparationOptions options = kOptions;
  options.num_threads = 4;
  options.max_long = 2;
  PreparationQueue queue(options);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue.Push(500, absl::ZeroDuration()).ok());
  const auto first = queue.Pop(absl::Hours(1));
  EXPECT_TRUE(first && queue.Pop(absl::Hours(1)));
  EXPECT_EQ(queue.Pop(absl::Hours(1)), std::nullopt);
  queue.Finish(*first);
  EXPECT_TRUE(queue.Pop(absl::Hours(1)).has_value());
}

TEST(PreparationQueueTest, OneThreadTakesBoth) {
  PreparationOptions options = kOptions;
  options.num_threads = 1;
  PreparationQueue queue(options);
  const auto giant = *queue.Push(500, absl::ZeroDuration());
  EXPECT_EQ(queue.Pop(absl::ZeroDuration()), giant);
}

TEST(PreparationQueueTest, WhoHasWaitedLongGoesFirst) {
  PreparationQueue queue(kOptions);
  const auto giant = *queue.Push(500, absl::ZeroDuration()), middle = *queue.Push(50, absl::Seconds(1));
  const auto small = *queue.Push(5, absl::Milliseconds(1900));
  EXPECT_EQ(queue.Pop(absl::Milliseconds(1999)), small);
  const auto next = *queue.Push(5, absl::Milliseconds(1999));
  EXPECT_EQ(queue.Pop(absl::Seconds(2)), giant);
  EXPECT_EQ(queue.Pop(absl::Seconds(3)), middle);
  EXPECT_EQ(queue.Pop(absl::Seconds(3)), next);
}

TEST(PreparationQueueTest, OnlyWhatWaitsCanBeRemoved) {
  PreparationQueue queue(kOptions);
  const auto now = absl::ZeroDuration();
  const auto a = *queue.Push(5, now), b = *queue.Push(500, now);
  EXPECT_TRUE(queue.Remove(b));
  EXPECT_FALSE(queue.Remove(b));
  EXPECT_EQ(queue.Pop(now), a);
  EXPECT_FALSE(queue.Remove(a));
  EXPECT_EQ(queue.num_waiting(), 0u);
}

// Against a list that is searched: every pop is right, nothing is lost or run twice, and nobody waits for ever.
TEST(PreparationQueueTest, RandomAgainstAList) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const int threads = 1 + static_cast<int>(random() % 3);
    PreparationOptions options = kOptions;
    options.num_threads = threads;
    PreparationQueue queue(options);
    struct Task {
      int64_t bytes;
      MonotonicTime arrived;
    };
    std::map<PreparationQueue::Id, Task> waiting, running;
    MonotonicTime now = absl::ZeroDuration();
    for (int step = 0; step < 500; ++step) {
      now += absl::Milliseconds(random() % 300);
      if (random() % 2 == 0) {
        const int64_t bytes = random() % 4 == 0 ? 100 + random() % 400 : random() % 100;
        const auto id = queue.Push(bytes, now);
        ASSERT_EQ(id.ok(), waiting.size() < options.max_waiting) << "seed " << seed;
        if (id.ok()) waiting[*id] = {bytes, now};
      }
      if (!running.empty() && random() % 3 != 0) {
        const auto it = std::next(running.begin(), random() % running.size());
        queue.Finish(it->first);
        running.erase(it);
      }
      if (static_cast<int>(running.size()) >= threads) continue;
      int long_running = 0;
      for (const auto& [id, task] : running) long_running += task.bytes >= 100;
      std::optional<PreparationQueue::Id> best;
      for (const auto& [id, task] : waiting) {
        if (task.bytes >= 100 && long_running >= std::max(1, threads - 1)) continue;
        if (!best) {
          best = id;
          if (now - task.arrived >= options.patience) break;  // The first in order of arrival.
          continue;
        }
        if (task.bytes < waiting[*best].bytes) best = id;
      }
      const auto popped = queue.Pop(now);
      ASSERT_EQ(popped, best) << "seed " << seed << ", step " << step;
      if (!popped) continue;
      running[*popped] = waiting[*popped];
      waiting.erase(*popped);
    }
    EXPECT_EQ(queue.num_waiting(), waiting.size());
  }
}

}  // namespace
}  // namespace baton
