// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/one_shot_timer.h"

#include <atomic>
#include <future>
#include <memory>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(OneShotTimer, CallsOnce) {
  std::promise<void> called;
  const OneShotTimer timer(absl::Milliseconds(1), [&] { called.set_value(); });  // A second call would throw.
  EXPECT_EQ(called.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

TEST(OneShotTimer, DestroyedBeforeItNeverCallsAndHoldsNothing) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  auto timer = std::make_unique<OneShotTimer>(absl::Hours(1), [held] { ADD_FAILURE() << *held; });
  held.reset();
  EXPECT_FALSE(seen.expired());
  timer.reset();
  EXPECT_TRUE(seen.expired());
}

// What a call uses may go away behind the destructor, at whatever moment that comes.
TEST(OneShotTimer, NoCallGoesOnBehindTheDestructor) {
  for (int round = 0; round < 300; ++round) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    std::atomic<bool> begun = false;
    std::atomic<bool>* const used = alive.get();
    auto timer = std::make_unique<OneShotTimer>(absl::ZeroDuration(), [&begun, used] {
      begun = true;
      EXPECT_TRUE(used->load());
    });
    while (round % 2 == 0 && !begun) {
    }
    timer.reset();
    alive->store(false);
  }
}

}  // namespace
}  // namespace baton
