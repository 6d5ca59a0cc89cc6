// SPDX-License-Identifier: Apache-2.0
#include "router/timers.h"

#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);

MonotonicTime In(absl::Duration delay) { return Clock::Real()->Now() + delay; }

// The thread sleeps until the first one that it knows of: what comes before that wakes it, whatever came meanwhile.
TEST(Timers, ASoonerOneDoesNotWaitForALaterOne) {
  Timers timers;
  for (int i = 0; i < 200; ++i) {
    const Timers::Id late = timers.Schedule(In(absl::Hours(2)), [] { ADD_FAILURE() << "too soon"; });
    const Timers::Id later = timers.Schedule(In(absl::Hours(3)), [] { ADD_FAILURE() << "too soon"; });
    absl::Notification soon;
    timers.Schedule(In(absl::Microseconds(i % 7 * 50)), [&] { soon.Notify(); });
    ASSERT_TRUE(soon.WaitForNotificationWithTimeout(kPatience));
    timers.Cancel(late);
    if (i % 2 == 0) timers.Cancel(later);
  }
}

TEST(Timers, InOrderAndNotWhenCancelled) {
  Timers timers;
  std::vector<int> order;
  absl::Notification last;
  const MonotonicTime begin = In(absl::Milliseconds(20));
  const Timers::Id dropped = timers.Schedule(begin + absl::Microseconds(1), [&] { order.push_back(0); });
  timers.Schedule(begin + absl::Microseconds(3), [&] {
    order.push_back(3);
    last.Notify();
  });
  timers.Schedule(begin + absl::Microseconds(2), [&] { order.push_back(2); });
  timers.Schedule(begin, [&] { order.push_back(1); });
  timers.Cancel(dropped);
  ASSERT_TRUE(last.WaitForNotificationWithTimeout(kPatience));
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3));
}

TEST(Timers, AStoppedOneCallsNobody) {
  Timers timers;
  timers.Schedule(In(absl::Hours(1)), [] { ADD_FAILURE(); });
  timers.Stop();
  EXPECT_NE(timers.Schedule(In(absl::ZeroDuration()), [] { ADD_FAILURE(); }), 0u);
}

}  // namespace
}  // namespace baton
