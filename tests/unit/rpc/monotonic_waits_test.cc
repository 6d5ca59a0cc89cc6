// SPDX-License-Identifier: Apache-2.0
// Timed waits of Abseil, and so gRPC's timers, go by the monotonic clock in every program that speaks gRPC. What follows when the wall
// clock jumps is deploy/clock_jump_test.py's.
#include <dlfcn.h>

#include <string>
#include <thread>

#include "absl/base/config.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/monotonic_deadline.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

#if ABSL_LTS_RELEASE_VERSION == 20220623
TEST(MonotonicWaits, AreTheProgramsOwn) {
  void* const wait = dlsym(RTLD_DEFAULT, "AbslInternalPerThreadSemWait_debian3");
  ASSERT_NE(wait, nullptr);
  Dl_info of_wait, of_program;
  ASSERT_NE(dladdr(wait, &of_wait), 0);
  static const int here = 0;
  ASSERT_NE(dladdr(&here, &of_program), 0);
  EXPECT_EQ(of_wait.dli_fbase, of_program.dli_fbase) << of_wait.dli_fname;
}
#endif

TEST(MonotonicWaits, EndInTime) {
  absl::Mutex mutex;
  absl::CondVar changed;
  absl::MutexLock lock(&mutex);
  for (const absl::Duration timeout : {absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(20)}) {
    const MonotonicTime begin = Clock::Real()->Now();
    while (!changed.WaitWithTimeout(&mutex, timeout)) {
    }
    EXPECT_GE(Clock::Real()->Now() - begin, timeout);
  }
}

TEST(MonotonicWaits, ANotificationEndsThem) {
  absl::Mutex mutex;
  absl::CondVar changed;
  for (int i = 0; i < 200; ++i) {
    bool done = false;
    std::thread other([&] {
      absl::MutexLock lock(&mutex);
      done = true;
      changed.Signal();
    });
    {
      absl::MutexLock lock(&mutex);
      while (!done) ASSERT_FALSE(changed.WaitWithTimeout(&mutex, absl::Minutes(1)) && !done);
    }
    other.join();
  }
}

TEST(MonotonicDeadlineTest, IsWhatIsLeft) {
  const absl::Duration left = TimeLeft(MonotonicDeadline(absl::Minutes(1)));
  EXPECT_LE(left, absl::Minutes(1));
  EXPECT_GT(left, absl::Seconds(30));
  EXPECT_LE(TimeLeft(MonotonicDeadline(absl::Seconds(-5))), absl::ZeroDuration());
  EXPECT_EQ(TimeLeft(MonotonicDeadline(absl::InfiniteDuration())), absl::InfiniteDuration());
  EXPECT_EQ(TimeLeft(gpr_inf_future(GPR_CLOCK_REALTIME)), absl::InfiniteDuration());
}

}  // namespace
}  // namespace baton
