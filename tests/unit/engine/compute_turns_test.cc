// SPDX-License-Identifier: Apache-2.0
#include "common/engine/compute_turns.h"

#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

class ComputeTurnsTest : public ::testing::Test {
 protected:
  ComputeTurnsTest() : decode_(*ComputeTurns::JoinTable(&table_)), prefill_(*ComputeTurns::JoinTable(&table_)) {}

  static MonotonicTime At(double ms) { return absl::Seconds(5000) + absl::Milliseconds(ms); }

  TurnTable table_;
  std::unique_ptr<ComputeTurns> decode_, prefill_;
};

TEST_F(ComputeTurnsTest, NobodyWaitsForNobody) {
  EXPECT_TRUE(prefill_->UnitMayBegin(At(0)));
  EXPECT_TRUE(decode_->StepMayBegin(At(0)));
  decode_->BeginStep(At(0));
  decode_->EndStep(At(10), absl::Milliseconds(5), /*more=*/true);
  EXPECT_TRUE(decode_->StepMayBegin(At(10))) << "a window that nobody wants";
  EXPECT_EQ(decode_->OldestWait(At(10)), absl::ZeroDuration());
}

TEST_F(ComputeTurnsTest, PrefillRunsInTheWindowAlone) {
  decode_->BeginStep(At(0));
  prefill_->Want(At(1), At(-30));
  EXPECT_FALSE(prefill_->UnitMayBegin(At(1)));
  EXPECT_EQ(decode_->OldestWait(At(10)), absl::Milliseconds(40));
  decode_->EndStep(At(10), absl::Milliseconds(5), /*more=*/true);
  EXPECT_TRUE(prefill_->UnitMayBegin(At(10)));
  EXPECT_FALSE(decode_->StepMayBegin(At(14.9)));
  EXPECT_TRUE(decode_->StepMayBegin(At(15)));
  EXPECT_FALSE(prefill_->UnitMayBegin(At(15)));
}

TEST_F(ComputeTurnsTest, AUnitThatWouldMostlyBeLateDoesNotBegin) {
  prefill_->NoteUnit(absl::Milliseconds(4));
  prefill_->Want(At(1), At(0));
  decode_->BeginStep(At(0));
  decode_->EndStep(At(10), absl::Milliseconds(5), /*more=*/true);
  EXPECT_TRUE(prefill_->UnitMayBegin(At(12.9)));
  EXPECT_FALSE(prefill_->UnitMayBegin(At(13.1)));
}

TEST_F(ComputeTurnsTest, AWindowThatIsNotNeededAnyMoreIsClosed) {
  prefill_->Want(At(1), At(0));
  decode_->BeginStep(At(0));
  decode_->EndStep(At(10), absl::Milliseconds(5), /*more=*/true);
  prefill_->WantNothing();
  EXPECT_TRUE(decode_->StepMayBegin(At(11)));
}

TEST_F(ComputeTurnsTest, TheLastStepLeavesEverythingToPrefill) {
  prefill_->Want(At(1), At(0));
  decode_->BeginStep(At(0));
  decode_->EndStep(At(10), absl::Milliseconds(5), /*more=*/false);
  EXPECT_TRUE(prefill_->UnitMayBegin(At(200)));
}

TEST_F(ComputeTurnsTest, EveryDecodeWorkerOfTheGroupCounts) {
  const auto second = *ComputeTurns::JoinTable(&table_);
  prefill_->Want(At(1), At(0));
  decode_->BeginStep(At(0));
  second->BeginStep(At(0));
  decode_->EndStep(At(10), absl::Milliseconds(5), /*more=*/true);
  EXPECT_FALSE(prefill_->UnitMayBegin(At(11)));
  second->EndStep(At(12), absl::Milliseconds(5), /*more=*/true);
  EXPECT_TRUE(prefill_->UnitMayBegin(At(13)));
}

TEST_F(ComputeTurnsTest, WhoDiesOrHangsHoldsNobodyUpForLong) {
  prefill_->Want(At(0), At(0));
  decode_->BeginStep(At(0));
  EXPECT_FALSE(prefill_->UnitMayBegin(At(299)));
  EXPECT_TRUE(prefill_->UnitMayBegin(At(300)));
  decode_->EndStep(At(301), absl::Seconds(5), /*more=*/true);
  EXPECT_TRUE(decode_->StepMayBegin(At(302))) << "prefill has not renewed its wish";
}

TEST_F(ComputeTurnsTest, WhoLeavesTakesItsWordBack) {
  decode_->BeginStep(At(0));
  EXPECT_FALSE(prefill_->UnitMayBegin(At(1)));
  decode_.reset();
  EXPECT_TRUE(prefill_->UnitMayBegin(At(1)));
}

TEST_F(ComputeTurnsTest, TimesOfAnotherClockAreIgnored) {
  decode_->BeginStep(At(1e9));
  EXPECT_TRUE(prefill_->UnitMayBegin(At(0)));
}

TEST_F(ComputeTurnsTest, PlacesAreBoundedAndThoseOfTheDeadAreTakenAgain) {
  std::vector<std::unique_ptr<ComputeTurns>> others;
  for (int i = 2; i < TurnTable::kNumSlots; ++i) others.push_back(*ComputeTurns::JoinTable(&table_));
  EXPECT_THAT(ComputeTurns::JoinTable(&table_).status(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("63")));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  table_.slots[7].pid.store(child);
  EXPECT_TRUE(ComputeTurns::JoinTable(&table_).ok());
}

TEST(ComputeTurnsGroup, ProcessesThatNameTheSameGroupMeet) {
  const std::string name = NewId("test");
  const auto prefill = ComputeTurns::Join(name);
  ASSERT_TRUE(prefill.ok()) << prefill.status();
  const MonotonicTime now = Clock::Real()->Now();
  const pid_t child = fork();
  if (child == 0) {
    auto decode = ComputeTurns::Join(name);
    if (!decode.ok()) _exit(1);
    (*decode)->BeginStep(now);
    _exit(0);  // As if killed: nothing is taken back.
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_FALSE((*prefill)->UnitMayBegin(now));
  EXPECT_THAT(ComputeTurns::Join("a/b").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a/b'")));
}

}  // namespace
}  // namespace baton
