// SPDX-License-Identifier: Apache-2.0
// One case per rule of the handoff's table; where a rule has a counterexample in tests/protocol, its name is given.
#include "common/kv_transfer/decode_handoff.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Kind = DecodeHandoff::Action::Kind;
using State = DecodeHandoff::State;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const PeerId kP1{"p-1", 11};
const PeerId kP1Restarted{"p-1", 12};
const PeerId kP2{"p-2", 21};

std::vector<Kind> Kinds(const DecodeHandoff::Actions& actions) {
  std::vector<Kind> kinds;
  for (const auto& action : actions) kinds.push_back(action.kind);
  return kinds;
}

DecodeHandoff Landing() {
  DecodeHandoff handoff;
  handoff.Start(/*complete=*/false, /*local=*/false);
  return handoff;
}

DecodeHandoff OneSidedLanding() {
  DecodeHandoff handoff = Landing();
  handoff.OnOpen(1, kP1, /*may_write_itself=*/true);
  return handoff;
}

TEST(DecodeHandoffTest, WholePromptCachedLandsAtOnce) {
  DecodeHandoff handoff;
  EXPECT_THAT(Kinds(handoff.Start(true, false)), ElementsAre(Kind::kSendLanded, Kind::kRun));
  EXPECT_EQ(handoff.state(), State::kReady);
}

TEST(DecodeHandoffTest, LandingIsOfferedAfterItsZoneIsOpen) {
  DecodeHandoff handoff;
  EXPECT_THAT(Kinds(handoff.Start(false, false)), ElementsAre(Kind::kOpenZone, Kind::kSendLanding));
  EXPECT_EQ(handoff.attempt(), 1);
}

TEST(DecodeHandoffTest, VerifiedManifestRuns) {
  DecodeHandoff handoff = Landing();
  EXPECT_THAT(Kinds(handoff.OnManifest(1, kP1, absl::OkStatus())), ElementsAre(Kind::kSendLanded, Kind::kRun));
  EXPECT_EQ(handoff.state(), State::kReady);
}

TEST(DecodeHandoffTest, UnverifiedManifestNeverRuns) {  // no-verify
  DecodeHandoff handoff = Landing();
  const auto actions = handoff.OnManifest(1, kP1, absl::DataLossError("flipped"));
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kSendFailed));
  EXPECT_EQ(actions[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(handoff.state(), State::kLanding);
  EXPECT_THAT(Kinds(handoff.OnAttempt(2, false)), ElementsAre(Kind::kOpenZone, Kind::kSendLanding));
}

TEST(DecodeHandoffTest, ManifestOfAnOldAttemptIsIgnored) {  // no-fencing
  DecodeHandoff handoff = Landing();
  handoff.OnAttempt(2, false);
  EXPECT_THAT(handoff.OnManifest(1, kP1, absl::OkStatus()), IsEmpty());
  EXPECT_EQ(handoff.state(), State::kLanding);
}

TEST(DecodeHandoffTest, AManifestAfterTheEndEndsItsWriter) {  // ack-ignored
  DecodeHandoff handoff = OneSidedLanding();
  EXPECT_THAT(Kinds(handoff.OnStop(false)), ElementsAre(Kind::kAbort, Kind::kCancelQuarantined, Kind::kSendStopped));
  EXPECT_THAT(Kinds(handoff.OnManifest(1, kP1, absl::CancelledError("not current"))), ElementsAre(Kind::kReleaseQuarantine));
  EXPECT_FALSE(handoff.has_quarantine());
}

TEST(DecodeHandoffTest, OpenOfACurrentAttemptIsGranted) {  // W1
  DecodeHandoff handoff = Landing();
  const auto actions = handoff.OnOpen(1, kP1, true);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kGrant));
  EXPECT_TRUE(actions[0].one_sided);
}

TEST(DecodeHandoffTest, OpenOfAnotherAttemptIsDenied) {  // address-in-landing
  DecodeHandoff handoff = Landing();
  handoff.OnAttempt(2, false);
  EXPECT_THAT(Kinds(handoff.OnOpen(1, kP1, true)), ElementsAre(Kind::kDeny));
  EXPECT_THAT(Kinds(handoff.OnOpen(3, kP1, true)), ElementsAre(Kind::kDeny));
}

TEST(DecodeHandoffTest, ASecondWriterOfOneAttemptIsDenied) {
  DecodeHandoff handoff = OneSidedLanding();
  EXPECT_THAT(Kinds(handoff.OnOpen(1, kP2, true)), ElementsAre(Kind::kDeny));
}

TEST(DecodeHandoffTest, TheManifestOfAnotherThanTheWriterRunsNothing) {
  DecodeHandoff handoff = OneSidedLanding();
  handoff.OnOpen(1, kP1Restarted, false);  // Denied, but a two-sided writer does not wait for the answer.
  EXPECT_THAT(Kinds(handoff.OnManifest(1, kP1Restarted, absl::OkStatus())), ElementsAre(Kind::kSendFailed));
  EXPECT_EQ(handoff.state(), State::kLanding);
  // The writer has its grant still, so that the next attempt gets new blocks.
  EXPECT_THAT(Kinds(handoff.OnAttempt(2, false)),
              ElementsAre(Kind::kAbort, Kind::kReplaceBlocks, Kind::kOpenZone, Kind::kSendLanding));
}

TEST(DecodeHandoffTest, PastTheQuarantineCapAGrantIsTwoSided) {  // W6
  DecodeHandoff handoff = Landing();
  const auto actions = handoff.OnOpen(1, kP1, false);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kGrant));
  EXPECT_FALSE(actions[0].one_sided);
}

TEST(DecodeHandoffTest, NewAttemptKeepsBlocksThatNobodyWrites) {
  DecodeHandoff handoff = Landing();
  EXPECT_THAT(Kinds(handoff.OnAttempt(2, false)), ElementsAre(Kind::kOpenZone, Kind::kSendLanding));
}

TEST(DecodeHandoffTest, NewAttemptTakesNewBlocksFromAOneSidedWriter) {  // reuse-without-ack
  DecodeHandoff handoff = OneSidedLanding();
  const auto actions = handoff.OnAttempt(2, false);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAbort, Kind::kReplaceBlocks, Kind::kOpenZone, Kind::kSendLanding));
  EXPECT_EQ(actions[0].attempt, 1);
  EXPECT_EQ(actions[1].attempt, 1);
  EXPECT_EQ(actions[2].attempt, 2);
  EXPECT_THAT(Kinds(handoff.OnWriterGone(kP1, 1)), ElementsAre(Kind::kReleaseQuarantine));
}

TEST(DecodeHandoffTest, NewAttemptTakesNewBlocksWhileAFrameIsCopied) {  // unpinned-apply
  DecodeHandoff handoff = Landing();
  EXPECT_THAT(Kinds(handoff.OnAttempt(2, /*pinned=*/true)),
              ElementsAre(Kind::kReplaceBlocks, Kind::kOpenZone, Kind::kSendLanding));
  EXPECT_THAT(Kinds(handoff.OnUnpinned(1)), ElementsAre(Kind::kReleaseQuarantine));
}

TEST(DecodeHandoffTest, OldOrEqualAttemptsChangeNothing) {
  DecodeHandoff handoff = Landing();
  handoff.OnAttempt(2, false);
  EXPECT_THAT(handoff.OnAttempt(2, false), IsEmpty());
  EXPECT_THAT(handoff.OnAttempt(1, false), IsEmpty());
}

TEST(DecodeHandoffTest, AttemptAfterLandedIsAnsweredAlreadyLanded) {  // restart-after-landed, no-already-landed
  DecodeHandoff handoff = Landing();
  handoff.OnManifest(1, kP1, absl::OkStatus());
  const auto actions = handoff.OnAttempt(2, false);
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kSendLanded));
  EXPECT_EQ(actions[0].attempt, 1);
  EXPECT_THAT(Kinds(handoff.OnPrefillLocally(3, false)), ElementsAre(Kind::kSendLanded));
}

TEST(DecodeHandoffTest, LocalPrefillIsAnAttemptToo) {
  DecodeHandoff handoff = Landing();
  EXPECT_THAT(Kinds(handoff.OnPrefillLocally(2, false)), ElementsAre(Kind::kPrefillLocally));
  EXPECT_THAT(handoff.OnManifest(1, kP1, absl::OkStatus()), IsEmpty());
  EXPECT_THAT(Kinds(handoff.OnComputedLocally(absl::OkStatus())), ElementsAre(Kind::kSendLanded));
  EXPECT_EQ(handoff.state(), State::kReady);
}

TEST(DecodeHandoffTest, ALocalPrefillAnswersTheNewestAttempt) {
  DecodeHandoff handoff = Landing();
  handoff.OnPrefillLocally(2, false);
  EXPECT_THAT(handoff.OnAttempt(3, false), IsEmpty());
  EXPECT_EQ(handoff.state(), State::kLocal);
  const auto actions = handoff.OnComputedLocally(absl::OkStatus());
  ASSERT_THAT(Kinds(actions), ElementsAre(Kind::kSendLanded));
  EXPECT_EQ(actions[0].attempt, 3);
}

TEST(DecodeHandoffTest, StopWithoutWriterFrees) {
  DecodeHandoff handoff = Landing();
  EXPECT_THAT(Kinds(handoff.OnStop(false)), ElementsAre(Kind::kCancel, Kind::kSendStopped));
  EXPECT_FALSE(handoff.has_quarantine());
}

TEST(DecodeHandoffTest, StopWithAWriterQuarantines) {  // free-on-cancel
  DecodeHandoff handoff = OneSidedLanding();
  EXPECT_THAT(Kinds(handoff.OnStop(false)), ElementsAre(Kind::kAbort, Kind::kCancelQuarantined, Kind::kSendStopped));
  EXPECT_TRUE(handoff.has_quarantine());
  EXPECT_THAT(handoff.OnStop(false), IsEmpty());
  EXPECT_THAT(Kinds(handoff.OnWriterGone(kP1, 1)), ElementsAre(Kind::kReleaseQuarantine));  // ack-ignored
  EXPECT_THAT(handoff.OnWriterGone(kP1, 1), IsEmpty());                                     // double-free
}

TEST(DecodeHandoffTest, LateManifestEndsTheWriterOfQuarantinedBlocks) {
  DecodeHandoff handoff = OneSidedLanding();
  handoff.OnAttempt(2, false);
  EXPECT_THAT(Kinds(handoff.OnManifest(1, kP1, absl::CancelledError(""))), ElementsAre(Kind::kReleaseQuarantine));
}

TEST(DecodeHandoffTest, AClosedLinkDoesNotEndAOneSidedWriter) {  // W3, closed-link-is-gone
  DecodeHandoff handoff = OneSidedLanding();
  handoff.OnStop(false);
  EXPECT_THAT(handoff.OnLinkClosed(kP1), IsEmpty());
  EXPECT_TRUE(handoff.has_quarantine());
}

TEST(DecodeHandoffTest, AClosedLinkFailsATwoSidedAttempt) {
  DecodeHandoff handoff = Landing();
  handoff.OnOpen(1, kP1, false);
  EXPECT_THAT(handoff.OnLinkClosed(kP2), IsEmpty());
  EXPECT_THAT(Kinds(handoff.OnLinkClosed(kP1)), ElementsAre(Kind::kSendFailed));
  EXPECT_THAT(handoff.OnLinkClosed(kP1), IsEmpty());
}

TEST(DecodeHandoffTest, AnotherIncarnationReleasesNothing) {
  DecodeHandoff handoff = OneSidedLanding();
  handoff.OnStop(false);
  EXPECT_THAT(handoff.OnWriterGone(kP1Restarted, std::nullopt), IsEmpty());
  EXPECT_THAT(Kinds(handoff.OnWriterGone(kP1, std::nullopt)), ElementsAre(Kind::kReleaseQuarantine));
}

TEST(DecodeHandoffTest, TimeoutRefusesAndQuarantines) {
  DecodeHandoff handoff = OneSidedLanding();
  const auto actions = handoff.OnTimeout(false);
  EXPECT_THAT(Kinds(actions), ElementsAre(Kind::kAbort, Kind::kCancelQuarantined, Kind::kSendRefused));
  EXPECT_EQ(actions.back().status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(DecodeHandoffTest, TimeoutAfterLandedChangesNothing) {
  DecodeHandoff handoff = Landing();
  handoff.OnManifest(1, kP1, absl::OkStatus());
  EXPECT_THAT(handoff.OnTimeout(false), IsEmpty());
}

TEST(DecodeHandoffTest, ReadyStopKeepsNothing) {
  DecodeHandoff handoff = OneSidedLanding();
  handoff.OnManifest(1, kP1, absl::OkStatus());
  EXPECT_THAT(Kinds(handoff.OnStop(false)), ElementsAre(Kind::kCancel, Kind::kSendStopped));
}

TEST(DecodeHandoffTest, RouterGoneIsAStopThatNobodyHears) {
  DecodeHandoff handoff = Landing();
  EXPECT_THAT(Kinds(handoff.OnRouterGone(false)), ElementsAre(Kind::kCancel));
}

TEST(DecodeHandoffTest, NoBlocksForANewAttemptRefuses) {  // W7, credit-is-promise
  DecodeHandoff handoff = OneSidedLanding();
  handoff.OnAttempt(2, false);
  EXPECT_THAT(Kinds(handoff.OnNoBlocks(absl::ResourceExhaustedError("none"))),
              ElementsAre(Kind::kCancel, Kind::kSendRefused));
  EXPECT_THAT(Kinds(handoff.OnWriterGone(kP1, 1)), ElementsAre(Kind::kReleaseQuarantine));
}

// Whatever the order of events: an attempt's quarantine is released at most once and only after every writer of it is
// gone; the last message to the router is sent at most once; nothing runs before a verified manifest or a local prefill.
TEST(DecodeHandoffTest, RandomEventsKeepTheRules) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 rng(seed);
    DecodeHandoff handoff;
    std::set<int> granted, quarantined, acknowledged, pinned;
    int last_messages = 0;
    bool may_run = false, running = false;
    const auto apply = [&](const DecodeHandoff::Actions& actions) {
      for (const auto& action : actions) {
        switch (action.kind) {
          case Kind::kGrant:
            if (action.one_sided) granted.insert(action.attempt);
            break;
          case Kind::kReplaceBlocks:
          case Kind::kCancelQuarantined:
            ASSERT_TRUE(quarantined.insert(action.attempt).second) << "seed " << seed;
            break;
          case Kind::kReleaseQuarantine:
            ASSERT_EQ(quarantined.erase(action.attempt), 1u) << "seed " << seed;
            ASSERT_TRUE(!granted.contains(action.attempt) || acknowledged.contains(action.attempt)) << "seed " << seed;
            ASSERT_FALSE(pinned.contains(action.attempt)) << "seed " << seed;
            break;
          case Kind::kCancel:
            ASSERT_FALSE(handoff.state() == State::kLanding) << "seed " << seed;
            break;
          case Kind::kRun:
            ASSERT_TRUE(may_run) << "seed " << seed;
            ASSERT_FALSE(std::exchange(running, true)) << "seed " << seed;
            break;
          case Kind::kSendStopped:
          case Kind::kSendRefused:
            ASSERT_EQ(++last_messages, 1) << "seed " << seed;
            break;
          default:
            break;
        }
      }
    };
    apply(handoff.Start(false, rng() % 8 == 0));
    for (int step = 0; step < 12; ++step) {
      const int n = static_cast<int>(rng() % 4) + 1;
      const bool landing = handoff.state() == State::kLanding;
      const bool pin = landing && rng() % 3 == 0;
      const bool newer = landing && n > handoff.attempt();
      switch (rng() % 9) {
        case 0: if (newer && pin) pinned.insert(handoff.attempt()); apply(handoff.OnAttempt(n, newer && pin)); break;
        case 1: if (newer && pin) pinned.insert(handoff.attempt()); apply(handoff.OnPrefillLocally(n, newer && pin)); break;
        case 2: apply(handoff.OnOpen(n, kP1, rng() % 2 == 0)); break;
        case 3: {
          const bool good = rng() % 2 == 0;
          may_run = may_run || (good && landing && n == handoff.attempt());
          acknowledged.insert(n);
          apply(handoff.OnManifest(n, kP1, good ? absl::OkStatus() : absl::DataLossError("")));
          break;
        }
        case 4: acknowledged.insert(n); apply(handoff.OnWriterGone(kP1, n)); break;
        case 5: pinned.erase(n); apply(handoff.OnUnpinned(n)); break;
        case 6: apply(handoff.OnLinkClosed(kP1)); break;
        case 7: if (pin) pinned.insert(handoff.attempt()); apply(handoff.OnStop(pin)); break;
        case 8: if (pin) pinned.insert(handoff.attempt()); apply(handoff.OnTimeout(pin)); break;
      }
    }
    for (int n = 1; n <= 4; ++n) {
      pinned.erase(n);
      apply(handoff.OnUnpinned(n));
    }
    for (int n = 1; n <= 4; ++n) acknowledged.insert(n);
    apply(handoff.OnWriterGone(kP1, std::nullopt));
    ASSERT_TRUE(quarantined.empty()) << "seed " << seed;
    ASSERT_FALSE(handoff.has_quarantine()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace baton
