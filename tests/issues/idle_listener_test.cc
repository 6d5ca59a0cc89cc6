// SPDX-License-Identifier: Apache-2.0
// An idle worker's threads that waited for KV connections without a deadline took a core each: the infinite wait, converted to
// milliseconds, overflowed to none at all.
#include "common/kv_transfer/stream/socket.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(IdleListenerTest, WaitsWithoutDeadlineSleep) {
  EXPECT_EQ(PollMilliseconds(absl::InfiniteDuration()), 1000 * 1000 + 1);
  EXPECT_EQ(PollMilliseconds(absl::Hours(1)), 1000 * 1000 + 1);
  EXPECT_EQ(PollMilliseconds(absl::Milliseconds(20)), 21);
  EXPECT_EQ(PollMilliseconds(absl::Microseconds(1)), 1);
  EXPECT_EQ(PollMilliseconds(absl::ZeroDuration()), 0);
  EXPECT_EQ(PollMilliseconds(-absl::InfiniteDuration()), 0);
}

}  // namespace
}  // namespace baton
