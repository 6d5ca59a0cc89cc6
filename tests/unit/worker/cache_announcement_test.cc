// SPDX-License-Identifier: Apache-2.0
#include "common/worker/cache_announcement.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CacheAnnouncement, ASnapshotFirstThenWhatChanged) {
  CacheAnnouncement announcement;
  auto update = announcement.Next({5, 1, 9, 7, 3});
  ASSERT_TRUE(update);
  EXPECT_EQ(update->sequence(), 1u);
  EXPECT_TRUE(update->snapshot());
  EXPECT_THAT(update->added(), ElementsAre(1, 3, 5, 7, 9));
  EXPECT_FALSE(announcement.Next({9, 7, 5, 3, 1}));  // The same, in another order.
  update = announcement.Next({1, 3, 5, 7, 8});
  ASSERT_TRUE(update);
  EXPECT_EQ(update->sequence(), 2u);
  EXPECT_FALSE(update->snapshot());
  EXPECT_THAT(update->added(), ElementsAre(8));
  EXPECT_THAT(update->removed(), ElementsAre(9));
}

TEST(CacheAnnouncement, AnEmptyCacheIsSaidToo) {
  CacheAnnouncement announcement;
  auto update = announcement.Next({});
  ASSERT_TRUE(update);
  EXPECT_TRUE(update->snapshot());
  EXPECT_THAT(update->added(), IsEmpty());
  EXPECT_FALSE(announcement.Next({}));
  ASSERT_TRUE(announcement.Next({1, 2}));
  update = announcement.Next({});  // Cleared: nothing is shorter than a list of what is gone.
  ASSERT_TRUE(update);
  EXPECT_TRUE(update->snapshot());
}

// Whoever applies every update has what there is.
TEST(CacheAnnouncement, RandomChangesAddUp) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 rng(seed);
    CacheAnnouncement announcement;
    std::set<uint64_t> cached, told;
    uint64_t sequence = 0;
    for (int step = 0; step < 200; ++step) {
      for (uint32_t change = rng() % 8; change > 0; --change) {
        const uint64_t prefix = 1ULL << (rng() % 64);  // Of different sets the sums differ.
        if (rng() % 2 == 0) cached.erase(prefix);
        else cached.insert(prefix);
      }
      if (const auto update = announcement.Next({cached.begin(), cached.end()})) {
        ASSERT_EQ(update->sequence(), ++sequence) << seed;
        if (update->snapshot()) told.clear();
        for (const uint64_t prefix : update->removed()) ASSERT_EQ(told.erase(prefix), 1u) << seed;
        for (const uint64_t prefix : update->added()) ASSERT_TRUE(told.insert(prefix).second) << seed;
      }
      ASSERT_EQ(told, cached) << seed;
    }
  }
}

}  // namespace
}  // namespace baton
