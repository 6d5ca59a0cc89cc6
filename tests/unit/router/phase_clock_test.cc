// SPDX-License-Identifier: Apache-2.0
#include "router/phase_clock.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

MonotonicTime At(int ms) { return absl::Milliseconds(ms); }

// The intervals lie end to end and add up to what each phase has spent.
void ExpectWhole(const PhaseClock& clock) {
  MonotonicTime last = clock.start();
  std::array<absl::Duration, kNumPhases> spent{};
  for (const PhaseClock::Interval& interval : clock.intervals()) {
    EXPECT_EQ(interval.begin, last);
    last = interval.end;
    spent[static_cast<size_t>(interval.phase)] += interval.end - interval.begin;
  }
  EXPECT_EQ(last - clock.start(), clock.total());
  for (int phase = 0; phase < kNumPhases; ++phase) {
    EXPECT_EQ(spent[static_cast<size_t>(phase)], clock.spent(static_cast<Phase>(phase))) << phase;
  }
}

TEST(PhaseClock, KeepsIntervalsWhereAskedTo) {
  PhaseClock clock(Phase::kTokenise, At(0)), plain(Phase::kTokenise, At(0));
  clock.KeepIntervals();
  for (PhaseClock* each : {&clock, &plain}) {
    each->Enter(Phase::kQueued, At(2));
    each->Enter(Phase::kPrefill, At(5));
    each->Enter(Phase::kQueued, At(9));  // The attempt failed.
    each->Enter(Phase::kPrefill, At(10));
    each->Enter(Phase::kDecode, At(20));
    for (int ms = 21; ms < 400; ++ms) each->Enter(Phase::kDecode, At(ms));  // A token each: one interval.
    each->Stop(At(400));
  }
  EXPECT_EQ(clock.intervals().size(), 6u);
  ExpectWhole(clock);
  EXPECT_TRUE(plain.intervals().empty());
  EXPECT_EQ(plain.spent(Phase::kDecode), clock.spent(Phase::kDecode));
}

TEST(PhaseClock, WhatIsLearntLateMovesTheBorder) {
  PhaseClock clock(Phase::kPrefill, At(0));
  clock.KeepIntervals();
  clock.Enter(Phase::kFirstStep, At(10));
  clock.Enter(Phase::kDecode, At(12));
  clock.Move(Phase::kPrefill, Phase::kTransferExposed, At(4));
  clock.Stop(At(20));
  ASSERT_EQ(clock.intervals().size(), 4u);
  EXPECT_EQ(clock.intervals()[1].phase, Phase::kTransferExposed);
  EXPECT_EQ(clock.intervals()[1].begin, At(6));
  EXPECT_EQ(clock.intervals()[1].end, At(10));
  ExpectWhole(clock);
}

TEST(PhaseClock, TheNumberOfIntervalsIsBounded) {
  PhaseClock clock(Phase::kQueued, At(0));
  clock.KeepIntervals();
  for (int i = 1; i < 1000; ++i) clock.Enter(i % 2 == 0 ? Phase::kQueued : Phase::kPrefill, At(i));
  clock.Move(Phase::kPrefill, Phase::kTransferExposed, At(1));
  EXPECT_EQ(clock.intervals().size(), PhaseClock::kMaxIntervals);
  EXPECT_EQ(clock.total(), At(999));
}

}  // namespace
}  // namespace baton
