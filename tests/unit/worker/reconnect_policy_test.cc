// SPDX-License-Identifier: Apache-2.0
#include "common/worker/reconnect_policy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

MonotonicTime At(double seconds) { return absl::Seconds(100) + absl::Seconds(seconds); }

TEST(ReconnectPolicyTest, WhatFailsIsTriedAgainLessAndLessOften) {
  ReconnectPolicy policy;
  const int expected_ms[] = {100, 200, 400, 800, 1000, 1000};
  for (const int ms : expected_ms) {
    EXPECT_EQ(policy.OnSessionEnd(false, true, At(0), At(0), 0.5).pause, absl::Milliseconds(ms));
  }
  EXPECT_EQ(policy.OnSessionEnd(false, true, At(0), At(0), 0.0).pause, absl::Milliseconds(500));
  EXPECT_EQ(policy.OnSessionEnd(true, true, At(0), At(0), 0.5).pause, absl::Milliseconds(375));
  EXPECT_EQ(policy.OnSessionEnd(false, true, At(0), At(0), 0.5).pause, absl::Milliseconds(500));
  EXPECT_EQ(policy.OnSessionEnd(false, true, At(0), At(0), 0.5).pause, absl::Seconds(1));
}

TEST(ReconnectPolicyTest, WhoCannotBeReachedIsNamedOnceAndNotBeforeThreeSeconds) {
  ReconnectPolicy policy;
  EXPECT_FALSE(policy.OnSessionEnd(false, true, At(0), At(0.1), 0.5).warn);
  EXPECT_FALSE(policy.OnSessionEnd(false, true, At(2), At(2.9), 0.5).warn);
  EXPECT_TRUE(policy.OnSessionEnd(false, true, At(2.9), At(3.1), 0.5).warn);
  EXPECT_FALSE(policy.OnSessionEnd(false, true, At(60), At(61), 0.5).warn);
  // It was there again for a while: what follows is news, after another three seconds.
  EXPECT_FALSE(policy.OnSessionEnd(true, true, At(61), At(99), 0.5).warn);
  EXPECT_FALSE(policy.OnSessionEnd(false, true, At(100), At(102), 0.5).warn);
  EXPECT_TRUE(policy.OnSessionEnd(false, true, At(102), At(103.5), 0.5).warn);
}

TEST(ReconnectPolicyTest, ARefusalIsNamedAtOnce) {
  ReconnectPolicy policy;
  EXPECT_TRUE(policy.OnSessionEnd(false, false, At(0), At(0), 0.5).warn);
  EXPECT_FALSE(policy.OnSessionEnd(false, false, At(1), At(1), 0.5).warn);
}

// D18. A router is gone for a while and comes back on the same address: of 20 workers at most 10 knock in any 50 ms.
TEST(ReconnectPolicyTest, D18WorkersOfARestartedRouterComeOneAfterTheOther) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    const MonotonicTime back = At(uniform(rng) * 3);
    std::vector<MonotonicTime> attempts, registered;
    for (int worker = 0; worker < 20; ++worker) {
      ReconnectPolicy policy;
      MonotonicTime now = At(0);
      for (bool accepted = true;; accepted = false) {
        now += policy.OnSessionEnd(accepted, true, now, now, uniform(rng)).pause;
        attempts.push_back(now);
        if (now >= back) break;
      }
      registered.push_back(now);
    }
    EXPECT_LE(*std::max_element(registered.begin(), registered.end()), back + 1.5 * ReconnectPolicy::kMaxBackoff) << seed;
    std::sort(attempts.begin(), attempts.end());
    for (size_t first = 0; first + 10 < attempts.size(); ++first) {
      ASSERT_GT(attempts[first + 10] - attempts[first], absl::Milliseconds(50)) << "11 attempts within 50 ms, seed " << seed;
    }
  }
}

}  // namespace
}  // namespace baton
