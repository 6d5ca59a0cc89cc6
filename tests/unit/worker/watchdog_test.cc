// SPDX-License-Identifier: Apache-2.0
#include "common/worker/watchdog.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using testing::IsOk;
using testing::StatusIs;
using ::testing::HasSubstr;

MonotonicTime At(double seconds) { return absl::Seconds(100) + absl::Seconds(seconds); }

TEST(WatchdogTest, ACounterThatStandsForLongerThanTheLimitIsStuck) {
  Watchdog watchdog(absl::Seconds(10));
  for (int second = 0; second <= 30; ++second) EXPECT_THAT(watchdog.Check(static_cast<uint64_t>(second), At(second)), IsOk());
  for (int second = 31; second <= 40; ++second) EXPECT_THAT(watchdog.Check(30, At(second)), IsOk()) << second;
  EXPECT_THAT(watchdog.Check(30, At(41)), StatusIs(absl::StatusCode::kInternal, HasSubstr("no step for 11s")));
  EXPECT_THAT(watchdog.Check(31, At(42)), IsOk());
}

// Stopped and continued, the whole process: who asks comes first as likely as not.
TEST(WatchdogTest, APauseOfWhoAsksIsNoFault) {
  Watchdog watchdog(absl::Seconds(10));
  EXPECT_THAT(watchdog.Check(1, At(0)), IsOk());
  EXPECT_THAT(watchdog.Check(1, At(60)), IsOk());
  EXPECT_THAT(watchdog.Check(1, At(69)), IsOk());
  EXPECT_THAT(watchdog.Check(1, At(71)), StatusIs(absl::StatusCode::kInternal, HasSubstr("11s")));
}

TEST(WatchdogTest, WhoAsksSeldomFindsItTheSecondTime) {
  Watchdog watchdog(absl::Seconds(10));
  EXPECT_THAT(watchdog.Check(1, At(0)), IsOk());
  EXPECT_THAT(watchdog.Check(1, At(15)), IsOk());
  EXPECT_THAT(watchdog.Check(1, At(30)), StatusIs(absl::StatusCode::kInternal, HasSubstr("15s")));
  EXPECT_THAT(watchdog.Check(2, At(45)), IsOk());
}

}  // namespace
}  // namespace baton
