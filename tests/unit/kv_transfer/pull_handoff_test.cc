// SPDX-License-Identifier: Apache-2.0
// The reader's table of a pull, row by row.
#include "common/kv_transfer/pull_handoff.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Kind = PullHandoff::Action::Kind;
using State = PullHandoff::State;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const PeerId kDecode{"d-1", 7, TransportKind::kTcp}, kDecodeByGrpc{"d-1", 7, TransportKind::kGrpc},
    kRestarted{"d-1", 8, TransportKind::kTcp};

class PullHandoffTest : public ::testing::Test {
 protected:
  std::vector<Kind> Do(const PullHandoff::Actions& actions) {
    std::vector<Kind> kinds;
    for (const auto& action : actions) {
      kinds.push_back(action.kind);
      if (action.kind == Kind::kEnd) result_ = action.status;
      if (action.kind == Kind::kAbort) EXPECT_EQ(action.writer, kDecode);
    }
    return kinds;
  }
  void Open() { EXPECT_THAT(Do(pull_.OnOpen(kDecode)), ElementsAre(Kind::kGrant)); }
  // What follows every kCloseZone.
  void ExpectEnd(absl::StatusCode code) {
    EXPECT_EQ(pull_.state(), State::kClosing);
    EXPECT_THAT(Do(pull_.OnClosed(/*pinned=*/false)), ElementsAre(Kind::kEnd));
    EXPECT_EQ(result_.code(), code) << result_;
    EXPECT_EQ(pull_.state(), State::kEnded);
    EXPECT_THAT(Do(pull_.OnOpen(kDecode)), ElementsAre(Kind::kDeny));
    EXPECT_THAT(Do(pull_.OnManifest(kDecode, absl::OkStatus())), IsEmpty());
    EXPECT_THAT(Do(pull_.Stop(absl::CancelledError(""))), IsEmpty());
  }

  PullHandoff pull_{7};
  absl::Status result_ = absl::UnknownError("not ended");
};

TEST_F(PullHandoffTest, AManifestThatVerifiesEndsItWell) {
  Open();
  EXPECT_THAT(Do(pull_.OnManifest(kDecode, absl::OkStatus())), ElementsAre(Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kOk);
}

TEST_F(PullHandoffTest, OneThatDoesNotEndsItBadly) {
  Open();
  EXPECT_THAT(Do(pull_.OnManifest(kDecode, absl::DataLossError("checksum"))), ElementsAre(Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kDataLoss);
}

TEST_F(PullHandoffTest, OnlyTheProcessThatHasTheHistoryMayWrite) {
  EXPECT_THAT(Do(pull_.OnOpen(kRestarted)), ElementsAre(Kind::kDeny));
  Open();
  EXPECT_THAT(Do(pull_.OnOpen(kDecodeByGrpc)), ElementsAre(Kind::kDeny));  // It is at work by another transport.
  Open();
}

// Whoever wrote the frames: nothing counts that the process which holds the blocks has not sent.
TEST_F(PullHandoffTest, AManifestOfWhoWasNotGrantedIsNone) {
  EXPECT_THAT(Do(pull_.OnManifest(kRestarted, absl::OkStatus())), ElementsAre(Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kAborted);
}

TEST_F(PullHandoffTest, AndTheOneWhoWasIsToldToStop) {
  Open();
  EXPECT_THAT(Do(pull_.OnManifest(kDecodeByGrpc, absl::OkStatus())), ElementsAre(Kind::kAbort, Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kAborted);
}

TEST_F(PullHandoffTest, TheWritersEndEndsIt) {
  EXPECT_THAT(Do(pull_.OnAborted(kDecode)), IsEmpty());
  EXPECT_THAT(Do(pull_.OnLinkClosed(kDecode)), IsEmpty());  // It has not opened: it may come by another link.
  Open();
  EXPECT_THAT(Do(pull_.OnLinkClosed(kDecodeByGrpc)), IsEmpty());
  EXPECT_THAT(Do(pull_.OnAborted(kRestarted)), IsEmpty());
  EXPECT_THAT(Do(pull_.OnLinkClosed(kDecode)), ElementsAre(Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kUnavailable);
}

TEST_F(PullHandoffTest, SoDoesItsGivingUp) {
  Open();
  EXPECT_THAT(Do(pull_.OnAborted(kDecode)), ElementsAre(Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kAborted);
}

TEST_F(PullHandoffTest, AStopTellsTheWriter) {
  Open();
  EXPECT_THAT(Do(pull_.Stop(absl::CancelledError("router"))), ElementsAre(Kind::kAbort, Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kCancelled);
}

TEST_F(PullHandoffTest, AStopBeforeAnyoneCame) {
  EXPECT_THAT(Do(pull_.Stop(absl::DeadlineExceededError("late"))), ElementsAre(Kind::kCloseZone));
  ExpectEnd(absl::StatusCode::kDeadlineExceeded);
}

// "cancel-frees-at-once": the blocks are somebody's to write until the last copy has ended.
TEST_F(PullHandoffTest, AFrameThatIsBeingCopiedIsWaitedFor) {
  Open();
  Do(pull_.Stop(absl::CancelledError("router")));
  EXPECT_THAT(Do(pull_.OnClosed(/*pinned=*/true)), IsEmpty());
  EXPECT_EQ(pull_.state(), State::kDraining);
  EXPECT_THAT(Do(pull_.OnOpen(kDecode)), ElementsAre(Kind::kDeny));
  EXPECT_THAT(Do(pull_.OnLinkClosed(kDecode)), IsEmpty());
  EXPECT_THAT(Do(pull_.OnUnpinned()), ElementsAre(Kind::kEnd));
  EXPECT_EQ(result_.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Do(pull_.OnUnpinned()), IsEmpty());
}

// Whatever comes in whatever order: one end at most, none while a copy goes on, and a good one only by the writer's manifest.
TEST_F(PullHandoffTest, RandomEvents) {
  std::mt19937 rng(5);
  for (int round = 0; round < 20000; ++round) {
    PullHandoff pull(7);
    int ends = 0;
    bool pinned = false, proven = false, granted = false;
    const auto take = [&](PullHandoff::Actions actions) {
      for (size_t i = 0; i < actions.size(); ++i) {
        const auto kind = actions[i].kind;
        granted = granted || kind == Kind::kGrant;
        if (kind == Kind::kCloseZone) {
          pinned = rng() % 2 == 0;
          for (const auto& more : pull.OnClosed(pinned)) actions.push_back(more);
        }
        if (kind != Kind::kEnd) continue;
        ++ends;
        ASSERT_FALSE(pinned);
        ASSERT_TRUE(proven || !actions[i].status.ok());
      }
    };
    const PeerId peers[] = {kDecode, kDecodeByGrpc, kRestarted};
    for (int step = 0; step < 8; ++step) {
      const PeerId& peer = peers[rng() % 3];
      switch (rng() % 6) {
        case 0:
          take(pull.OnOpen(peer));
          break;
        case 1:
          proven = proven || (pull.state() == State::kOpen && granted && pull.writer() == peer);
          take(pull.OnManifest(peer, absl::OkStatus()));
          break;
        case 2:
          take(pull.OnAborted(peer));
          break;
        case 3:
          take(pull.OnLinkClosed(peer));
          break;
        case 4:
          take(pull.Stop(absl::CancelledError("")));
          break;
        case 5:
          if (!pinned) break;
          pinned = false;
          take(pull.OnUnpinned());
          break;
      }
    }
    if (pinned) {
      pinned = false;
      take(pull.OnUnpinned());
    }
    ASSERT_EQ(ends, pull.state() == State::kOpen ? 0 : 1);
  }
}

}  // namespace
}  // namespace baton
