// SPDX-License-Identifier: Apache-2.0
// What a prefill worker wants of decode's cache goes through the router, which hands it on and changes nothing by it.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/request_flow.h"

namespace baton {
namespace {

using Kind = FlowAction::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FlowHistoryTest : public ::testing::Test {
 protected:
  FlowHistoryTest() : flow_({}, 100, PhaseClock(Phase::kTokenise, now_)) {
    flow_.Begin(now_, &actions_);
    Route(1, {.decode = {"d-1", 11}, .prefill = {"p-1", 21}, .group = {"m", "l"}, .reason = "always", .num_tokens = 100});
    Landing(1);
    Take();
  }
  void Route(uint64_t ticket, const baton::Route& route) { flow_.OnRoute(ticket, route, now_, &actions_); }
  void Landing(int attempt) {
    internal::DecodeEvent event;
    event.mutable_landing()->set_attempt(attempt);
    event.mutable_landing()->set_first_missing_token(32);
    flow_.OnDecodeEvent(1, event, now_, &actions_);
  }
  void Decode(const internal::DecodeEvent& event) { flow_.OnDecodeEvent(1, event, now_, &actions_); }
  void WantsHistory(int attempt) {
    internal::PrefillEvent event;
    event.mutable_history()->set_num_tokens(32);
    flow_.OnPrefillEvent(1, attempt, event, now_, &actions_);
  }
  void HistoryFailed(int attempt) {
    internal::DecodeEvent event;
    event.mutable_history_failed()->set_attempt(attempt);
    event.mutable_history_failed()->mutable_error()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    Decode(event);
  }
  void Done() {
    internal::PrefillEvent event;
    event.mutable_done()->set_cached_tokens(40);
    event.mutable_done()->set_history_tokens(32);
    flow_.OnPrefillEvent(1, 1, event, now_, &actions_);
  }
  // What was asked for since the last time.
  std::vector<Kind> Take() {
    std::vector<Kind> kinds;
    for (const FlowAction& action : actions_) kinds.push_back(action.kind);
    last_ = std::exchange(actions_, {});
    return kinds;
  }

  const MonotonicTime now_ = absl::Seconds(1000);
  RequestFlow flow_;
  FlowActions actions_, last_;
};

TEST_F(FlowHistoryTest, IsHandedOn) {
  WantsHistory(1);
  EXPECT_THAT(Take(), ElementsAre(Kind::kSendHistory));
  EXPECT_EQ(last_[0].stream, 1);
  EXPECT_EQ(last_[0].attempt, 1);
  EXPECT_EQ(last_[0].wants.num_tokens(), 32);
  Done();
  internal::DecodeEvent landed;
  landed.mutable_landed()->set_attempt(1);
  landed.mutable_landed()->set_transport("tcp");
  Decode(landed);
  EXPECT_EQ(flow_.state(), RequestFlow::State::kRunning);
  EXPECT_EQ(flow_.summary().cached_tokens, 40);
  EXPECT_EQ(flow_.summary().history_tokens, 32);
}

TEST_F(FlowHistoryTest, ItsFailureFailsNothing) {
  WantsHistory(1);
  Take();
  HistoryFailed(1);
  EXPECT_THAT(Take(), ElementsAre(Kind::kSendHistoryFailed));
  EXPECT_EQ(last_[0].attempt, 1);
  EXPECT_EQ(last_[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(flow_.state(), RequestFlow::State::kPrefill);
  EXPECT_EQ(flow_.summary().recoveries, 0);
  Done();
  Take();
  HistoryFailed(1);  // The call that it was for has ended.
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(FlowHistoryTest, OfAnOlderAttemptIsNot) {
  internal::DecodeEvent failed;
  failed.mutable_failed()->set_attempt(1);
  failed.mutable_failed()->mutable_error()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
  Decode(failed);
  Take();
  Route(2, {.prefill = {"p-2", 22}, .group = {"m", "l"}, .num_tokens = 100});
  Landing(2);
  Take();
  WantsHistory(1);
  HistoryFailed(1);
  EXPECT_THAT(Take(), IsEmpty());
  WantsHistory(2);
  EXPECT_THAT(Take(), ElementsAre(Kind::kSendHistory));
  EXPECT_EQ(last_[0].attempt, 2);
}

}  // namespace
}  // namespace baton
