// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/pull_policy.h"

#include <memory>

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr size_t kTokenBytes = 20000;  // 0.04 ms per token at first.
const PullPolicy::Source kD1("d-1", 7), kD2("d-2", 8);

class PullPolicyTest : public ::testing::Test {
 protected:
  void Make(PullHistory mode) { policy_ = std::make_unique<PullPolicy>(mode, kTokenBytes, absl::Seconds(10), &clock_); }
  PullPolicyTest() { Make(PullHistory::kAuto); }
  // A pull of so many tokens that took so long.
  void Pulled(int tokens, double ms) {
    policy_->OnBegin();
    policy_->OnPulled(int64_t{tokens} * kTokenBytes, absl::Milliseconds(ms));
  }

  ManualClock clock_;
  std::unique_ptr<PullPolicy> policy_;
};

TEST_F(PullPolicyTest, TheSoonerOfTheTwo) {
  const struct {
    int tokens;
    double compute_ms_per_token;
    bool pull;
  } cases[] = {
      {2000, 1, true},     // 2 s against 83 ms.
      {16, 1, true},       // 16 ms against 3.6.
      {16, 0.1, false},    // 1.6 ms.
      {2000, 0.03, false}, // A device that computes faster than that network carries.
      {100, 0, true},      // Not known: of the order of a millisecond each.
      {0, 1, false},
  };
  for (const auto& c : cases) EXPECT_EQ(policy_->ShouldPull(kD1, c.tokens, c.compute_ms_per_token), c.pull) << c.tokens;
}

TEST_F(PullPolicyTest, WhatPullsTakeIsMeasured) {
  EXPECT_FALSE(policy_->ShouldPull(kD1, 2000, 0.03));
  for (int i = 0; i < 40; ++i) Pulled(2000, 13);  // 0.005 ms per token, and 3 ms.
  EXPECT_NEAR(policy_->ms_per_token(), 0.005, 0.001);
  EXPECT_TRUE(policy_->ShouldPull(kD1, 2000, 0.03));
  for (int i = 0; i < 40; ++i) Pulled(16, 1);
  EXPECT_NEAR(policy_->fixed_ms(), 1, 0.1);
  EXPECT_TRUE(policy_->ShouldPull(kD1, 16, 0.1));
}

// A bad quarter of an hour is not for ever: what is never tried is never measured.
TEST_F(PullPolicyTest, AnEstimateThatKeepsPullsAwayIsForgotten) {
  for (int i = 0; i < 40; ++i) Pulled(2000, 100000);
  EXPECT_FALSE(policy_->ShouldPull(kD1, 2000, 1));
  int refused = 0;
  while (!policy_->ShouldPull(kD1, 2000, 1) && refused < 1000) ++refused;
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 200);
}

TEST_F(PullPolicyTest, AWorkerWhosePullFailedIsLeftAloneForAWhile) {
  ASSERT_TRUE(policy_->ShouldPull(kD1, 2000, 1));
  policy_->OnBegin();
  policy_->OnFailed(kD1, absl::UnavailableError("gone"));
  EXPECT_FALSE(policy_->ShouldPull(kD1, 2000, 1));
  EXPECT_TRUE(policy_->ShouldPull(kD2, 2000, 1));
  clock_.Advance(PullPolicy::kPause);
  EXPECT_TRUE(policy_->ShouldPull(kD1, 2000, 1));
}

// It will not become fit, but the next process of its name may be.
TEST_F(PullPolicyTest, AWorkerThatIsNotFitIsLeftAloneForLong) {
  ASSERT_TRUE(policy_->ShouldPull(kD1, 2000, 1));
  policy_->OnBegin();
  policy_->OnFailed(kD1, absl::FailedPreconditionError("eight bits"));
  clock_.Advance(PullPolicy::kUnfitPause - absl::Seconds(1));
  EXPECT_FALSE(policy_->ShouldPull(kD1, 2000, 1));
  EXPECT_TRUE(policy_->ShouldPull({"d-1", 9}, 2000, 1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(policy_->ShouldPull(kD1, 2000, 1));
}

TEST_F(PullPolicyTest, SoManyAtOnce) {
  for (int i = 0; i < PullPolicy::kMaxOpen; ++i) {
    ASSERT_TRUE(policy_->ShouldPull(kD1, 2000, 1));
    policy_->OnBegin();
  }
  EXPECT_FALSE(policy_->ShouldPull(kD1, 2000, 1));
  policy_->OnGivenUp();
  EXPECT_TRUE(policy_->ShouldPull(kD1, 2000, 1));
}

TEST_F(PullPolicyTest, AlwaysAndNever) {
  Make(PullHistory::kAlways);
  EXPECT_TRUE(policy_->ShouldPull(kD1, 16, 1e-6));
  policy_->OnBegin();
  policy_->OnFailed(kD1, absl::UnavailableError("gone"));
  EXPECT_FALSE(policy_->ShouldPull(kD1, 16, 1));
  Make(PullHistory::kNever);
  EXPECT_FALSE(policy_->ShouldPull(kD1, 100000, 100));
}

TEST_F(PullPolicyTest, PatienceFollowsWhatComputingTakes) {
  EXPECT_EQ(policy_->Patience(100, 1), absl::Seconds(2));
  EXPECT_EQ(policy_->Patience(2000, 1), absl::Seconds(4));
  EXPECT_EQ(policy_->Patience(20000, 1), absl::Seconds(10));  // The transfer timeout.
}

}  // namespace
}  // namespace baton
