// SPDX-License-Identifier: Apache-2.0
#include "common/base/thread.h"

#include <pthread.h>

#include <atomic>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(Thread, HasItsNameAndIsJoinedByTheDestructor) {
  std::atomic<bool> ran{false};
  char name[32] = {};
  {
    Thread thread("a-name-that-is-too-long", [&] {
      pthread_getname_np(pthread_self(), name, sizeof(name));
      ran = true;
    });
    EXPECT_TRUE(thread.joinable());
  }
  EXPECT_TRUE(ran);
  EXPECT_STREQ(name, "a-name-that-is-");
}

TEST(Thread, AssignmentJoinsTheOldOne) {
  std::atomic<int> ran{0};
  Thread thread("one", [&] { ++ran; });
  thread = Thread("two", [&] { ++ran; });
  EXPECT_GE(ran.load(), 1);
  thread.Join();
  thread.Join();
  EXPECT_EQ(ran.load(), 2);
  EXPECT_FALSE(thread.joinable());
}

TEST(Thread, LoweringAPriorityNeedsNoPrivilege) {
  bool lowered = false;
  Thread("nice", [&] { lowered = SetThreadNice(10); }).Join();
  EXPECT_TRUE(lowered);
  EXPECT_GE(NumUsableCpus(), 1);
}

}  // namespace
}  // namespace baton
