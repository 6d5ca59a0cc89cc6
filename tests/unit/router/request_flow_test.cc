// SPDX-License-Identifier: Apache-2.0
// The router's table of the handoff protocol, row by row, and its rules.
#include "router/request_flow.h"

#include <algorithm>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Kind = FlowAction::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const WorkerRef kD1{"d-1", 11}, kD2{"d-2", 12}, kP1{"p-1", 21}, kP2{"p-2", 22};

// Drives one flow and keeps the books that the shell would: credits taken and returned, calls open.
class FlowTest : public ::testing::Test {
 protected:
  FlowTest() { Make({}); }

  void Make(const FlowOptions& options) {
    flow_ = std::make_unique<RequestFlow>(options, 10, PhaseClock(Phase::kTokenise, now_));
    options_ = options;
  }
  void Take(FlowActions actions) {
    last_.clear();
    for (FlowAction& action : actions) {
      last_.push_back(action.kind);
      if (action.kind == Kind::kAcquire) ticket_ = action.ticket;
      if (action.kind == Kind::kRelease) --credits_[action.worker];
      if (action.kind == Kind::kEndRecovery) --recoveries_[action.worker];
      if (action.kind == Kind::kEnd) ends_.push_back(action.status);
      if (action.kind == Kind::kEmit) {
        for (const auto& token : action.tokens) emitted_.push_back(token.token_id());
      }
      all_.push_back(std::move(action));
    }
  }
  template <class F>
  void Do(F f) {
    FlowActions actions;
    f(&actions);
    Take(std::move(actions));
  }
  void Begin() {
    Do([&](auto* a) { flow_->Begin(now_, a); });
  }
  void Grant(WorkerRef decode, WorkerRef prefill, std::optional<PlacementCosts> costs = std::nullopt) {
    if (decode) ++credits_[decode];
    if (prefill) ++credits_[prefill];
    Route route{.decode = decode, .prefill = prefill, .group = {"m", "l"}, .reason = "always", .num_tokens = 10, .costs = costs};
    recoveries_[decode] += route.recovering = paces_recoveries_ && decode && !emitted_.empty();
    Do([&](auto* a) { flow_->OnRoute(ticket_, route, now_, a); });
  }
  void RouteError(absl::Status status) {
    Do([&](auto* a) { flow_->OnRoute(ticket_, status, now_, a); });
  }
  void Decode(int stream, const internal::DecodeEvent& event) {
    Do([&](auto* a) { flow_->OnDecodeEvent(stream, event, now_, a); });
  }
  void Landing(int stream, int attempt, int first_missing_token = 0) {
    internal::DecodeEvent event;
    event.mutable_landing()->set_attempt(attempt);
    event.mutable_landing()->set_first_missing_token(first_missing_token);
    Decode(stream, event);
  }
  void Landed(int stream, int attempt, const std::string& transport = "grpc") {
    internal::DecodeEvent event;
    event.mutable_landed()->set_attempt(attempt);
    event.mutable_landed()->set_transport(transport);
    event.mutable_landed()->set_kv_bytes(100);
    event.mutable_landed()->set_cached_tokens(3);
    Decode(stream, event);
  }
  void Token(int stream, int index, bool last = false) {
    internal::DecodeEvent event;
    auto* token = event.mutable_tokens()->add_tokens();
    token->set_index(index);
    token->set_token_id(100 + index);
    if (last) token->set_finish_reason(internal::LENGTH);
    Decode(stream, event);
  }
  void Refused(int stream, absl::StatusCode code) {
    internal::DecodeEvent event;
    event.mutable_refused()->set_code(static_cast<int>(code));
    event.mutable_refused()->set_message("no");
    Decode(stream, event);
  }
  void Failed(int stream, int attempt) {
    internal::DecodeEvent event;
    event.mutable_failed()->set_attempt(attempt);
    event.mutable_failed()->mutable_error()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
    Decode(stream, event);
  }
  void Stopped(int stream) {
    internal::DecodeEvent event;
    event.mutable_stopped();
    Decode(stream, event);
  }
  void DecodeEof(int stream, absl::Status status = absl::UnavailableError("reset")) {
    Do([&](auto* a) { flow_->OnDecodeEnd(stream, status, now_, a); });
  }
  void PrefillDone(int stream, int attempt, double tail_ms = 0, int cached = 0) {
    internal::PrefillEvent event;
    event.mutable_done()->set_transfer_tail_ms(tail_ms);
    event.mutable_done()->set_cached_tokens(cached);
    Do([&](auto* a) { flow_->OnPrefillEvent(stream, attempt, event, now_, a); });
  }
  void PrefillFailed(int stream, int attempt, absl::StatusCode code = absl::StatusCode::kUnavailable) {
    internal::PrefillEvent event;
    event.mutable_failed()->set_code(static_cast<int>(code));
    event.mutable_failed()->set_message("over the limit");
    Do([&](auto* a) { flow_->OnPrefillEvent(stream, attempt, event, now_, a); });
  }
  void PrefillEof(int stream, int attempt) {
    Do([&](auto* a) { flow_->OnPrefillEnd(stream, attempt, absl::UnavailableError("reset"), now_, a); });
  }
  void Timer(absl::Duration after) {
    now_ += after;
    Do([&](auto* a) { flow_->OnTimer(now_, a); });
  }
  void ClientEnd(absl::Status status) {
    Do([&](auto* a) { flow_->OnClientEnd(status, now_, a); });
  }
  void Advance(double ms) { now_ += absl::Milliseconds(ms); }
  // To running: Start, Landing, Prefill, Landed, Done.
  void Run() {
    Begin();
    Grant(kD1, kP1);
    Landing(1, 1);
    PrefillDone(1, 1);
    Landed(1, 1);
  }
  int Credits() const {
    int open = 0;
    for (const auto& [worker, count] : credits_) open += count;
    return open;
  }
  const FlowAction& Last(Kind kind) const {
    return *std::find_if(all_.rbegin(), all_.rend(), [&](const FlowAction& a) { return a.kind == kind; });
  }

  MonotonicTime now_ = absl::Seconds(1000);
  FlowOptions options_;
  std::unique_ptr<RequestFlow> flow_;
  uint64_t ticket_ = 0;
  std::vector<Kind> last_;
  FlowActions all_;
  std::vector<absl::Status> ends_;
  std::vector<int32_t> emitted_;
  std::map<WorkerRef, int> credits_, recoveries_;
  bool paces_recoveries_ = false;  // Routes of streams that have begun say `recovering`, as Admission's do.
};

TEST_F(FlowTest, GoodRunGivesTokensAndReturnsBothCredits) {
  Begin();
  EXPECT_THAT(last_, ElementsAre(Kind::kAcquire));
  Grant(kD1, kP1);
  EXPECT_THAT(last_, ElementsAre(Kind::kOpenDecode));
  Landing(1, 1);
  EXPECT_THAT(last_, ElementsAre(Kind::kOpenPrefill));
  EXPECT_EQ(Last(Kind::kOpenPrefill).worker, kP1);
  PrefillDone(1, 1);
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease));
  Landed(1, 1);
  EXPECT_EQ(flow_->state(), RequestFlow::State::kRunning);
  EXPECT_EQ(flow_->summary().prefill_worker, "p-1");  // Though its call ended before.
  Token(1, 0);
  Token(1, 1, true);
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease, Kind::kEmit, Kind::kEnd));
  EXPECT_THAT(emitted_, ElementsAre(100, 101));
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(Credits(), 0);
  EXPECT_TRUE(flow_->closed());
}

TEST_F(FlowTest, PhasesAddUpToTheTotal) {
  Advance(1);
  Begin();
  Advance(2);
  Grant(kD1, kP1);
  Advance(3);
  Landing(1, 1);
  Advance(40);
  PrefillDone(1, 1, /*tail_ms=*/10);
  Advance(5);
  Landed(1, 1);
  Advance(6);
  Token(1, 0);
  Advance(7);
  Token(1, 1, true);
  const PhaseClock& phases = flow_->phases();
  EXPECT_EQ(phases.spent(Phase::kTokenise), absl::Milliseconds(1));
  EXPECT_EQ(phases.spent(Phase::kQueued), absl::Milliseconds(2));
  EXPECT_EQ(phases.spent(Phase::kLanding), absl::Milliseconds(3));
  EXPECT_EQ(phases.spent(Phase::kPrefill), absl::Milliseconds(30));
  EXPECT_EQ(phases.spent(Phase::kTransferExposed), absl::Milliseconds(15));
  EXPECT_EQ(phases.spent(Phase::kFirstStep), absl::Milliseconds(6));
  EXPECT_EQ(phases.spent(Phase::kDecode), absl::Milliseconds(7));
  EXPECT_EQ(phases.total(), absl::Milliseconds(64));
}

TEST_F(FlowTest, LateDoneSplitsPrefillAndTransfer) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  Advance(40);
  Landed(1, 1);
  EXPECT_THAT(last_, ElementsAre());  // The call that delivered is not cancelled.
  Advance(1);
  PrefillDone(1, 1, /*tail_ms=*/11, /*cached=*/4);
  Advance(1);
  Token(1, 0, true);
  EXPECT_EQ(flow_->phases().spent(Phase::kPrefill), absl::Milliseconds(30));
  EXPECT_EQ(flow_->phases().spent(Phase::kTransferExposed), absl::Milliseconds(10));
  EXPECT_EQ(flow_->phases().spent(Phase::kFirstStep), absl::Milliseconds(2));
  EXPECT_EQ(flow_->summary().prefill_worker, "p-1");
  EXPECT_EQ(flow_->summary().cached_tokens, 4);
  EXPECT_EQ(flow_->summary().kv_bytes, 100);
}

TEST_F(FlowTest, EndWaitsForDoneOnlyAMoment) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  Landed(1, 1);
  Token(1, 0, true);
  EXPECT_THAT(emitted_, ElementsAre(100));
  EXPECT_TRUE(ends_.empty());
  Timer(options_.done_timeout);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_TRUE(ends_[0].ok());
  EXPECT_THAT(last_, ElementsAre(Kind::kCancelPrefill, Kind::kEnd));
  PrefillFailed(1, 1);
  EXPECT_EQ(Credits(), 0);
  EXPECT_TRUE(flow_->closed());
}

TEST_F(FlowTest, FullPrefixHitNeedsNoPrefill) {
  Begin();
  Grant(kD1, kP1);
  Landed(1, 0, "");
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease));
  Token(1, 0, true);
  EXPECT_FALSE(flow_->summary().disaggregated);
  EXPECT_EQ(flow_->summary().cached_tokens, 3);
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, RouteWithoutPrefillStartsLocally) {
  Begin();
  Grant(kD1, {});
  EXPECT_TRUE(Last(Kind::kOpenDecode).prefill_locally);
  EXPECT_EQ(flow_->state(), RequestFlow::State::kPrefill);
  Landed(1, 1, "");
  Token(1, 0, true);
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(Credits(), 0);
}

// Adaptive: what decode has cached is known only at the landing, and decides again.
TEST_F(FlowTest, AMostlyCachedPromptIsFinishedWhereItLands) {
  Make({.placement = {.handoff_ms = 3}});
  const PlacementCosts costs = {.local_ms_per_token = 1, .local_streams = 4, .remote_ms_per_token = 0.1};
  Begin();
  Grant(kD1, kP1, costs);
  Landing(1, 1, /*first_missing_token=*/6);  // Of 9 that a transfer would bring.
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease, Kind::kSendPrefillLocally));
  EXPECT_EQ(credits_[kP1], 0);
  Landed(1, 2, "");
  EXPECT_FALSE(flow_->summary().disaggregated);
  EXPECT_EQ(flow_->summary().reason, "cached");
  Token(1, 0, true);
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, APromptThatIsHardlyCachedGoesOnAsPlanned) {
  Make({.placement = {.handoff_ms = 3}});
  Begin();
  Grant(kD1, kP1, PlacementCosts{.local_ms_per_token = 1, .local_streams = 4, .remote_ms_per_token = 0.1});
  Landing(1, 1, /*first_missing_token=*/5);
  EXPECT_THAT(last_, ElementsAre(Kind::kOpenPrefill));
}

TEST_F(FlowTest, AProbeThatLandsAtOnceNeedsNoPrefillWorker) {
  Begin();
  ++credits_[kD1];
  Do([&](auto* a) { flow_->OnRoute(ticket_, Route{.decode = kD1, .probe = true, .group = {"m", "l"}, .num_tokens = 10}, now_, a); });
  EXPECT_FALSE(Last(Kind::kOpenDecode).prefill_locally);
  Landed(1, 0, "");
  Token(1, 0, true);
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(flow_->summary().reason, "cached");
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, AProbeThatMissesSeeksAPrefillWorkerAndIsNoRecovery) {
  Begin();
  ++credits_[kD1];
  Do([&](auto* a) { flow_->OnRoute(ticket_, Route{.decode = kD1, .probe = true, .group = {"m", "l"}, .num_tokens = 10}, now_, a); });
  Landing(1, 1);
  EXPECT_THAT(last_, ElementsAre(Kind::kAcquire));
  EXPECT_EQ(flow_->state(), RequestFlow::State::kRetry);
  RouteRequest request;
  flow_->FillRouteRequest(&request);
  EXPECT_TRUE(request.prefill_only);
  Grant({}, kP1);
  EXPECT_THAT(last_, ElementsAre(Kind::kSendAttempt));
  Landing(1, 2);
  EXPECT_EQ(Last(Kind::kOpenPrefill).worker, kP1);
  PrefillDone(1, 2);
  Landed(1, 2);
  Token(1, 0, true);
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(flow_->summary().recoveries, 0);
  EXPECT_EQ(Credits(), 0);
}

// Of a sibling's prompt all but the last block is where the first choice landed; if it is not, it is as any other.
TEST_F(FlowTest, ASiblingComputesOnlyTheTail) {
  for (const int missing : {64, 65}) {
    flow_ = std::make_unique<RequestFlow>(options_, 200, PhaseClock(Phase::kTokenise, now_));
    Do([&](auto* a) { flow_->BeginBeside(now_, a); });
    RouteRequest request;
    flow_->FillRouteRequest(&request);
    EXPECT_TRUE(request.resumed);
    EXPECT_FALSE(request.recovering);
    ++credits_[kD1];
    const Route route{.decode = kD1, .probe = true, .sibling = true, .group = {"m", "l"}, .reason = "sibling", .num_tokens = 16};
    Do([&](auto* a) { flow_->OnRoute(ticket_, route, now_, a); });
    Landing(1, 1, 199 - missing);
    EXPECT_THAT(last_, ElementsAre(missing == 64 ? Kind::kSendPrefillLocally : Kind::kAcquire)) << missing;
    Do([&](auto* a) { flow_->OnClientEnd(absl::CancelledError(""), now_, a); });
    Stopped(1);
    EXPECT_EQ(Credits(), 0);
  }
}

TEST_F(FlowTest, OneTokenNeedsNoPrefillAndARunningStreamIsARecovery) {
  RequestFlow one(options_, 1, PhaseClock(Phase::kTokenise, now_));
  RouteRequest request;
  one.FillRouteRequest(&request);
  EXPECT_FALSE(request.needs_prefill);
  flow_->FillRouteRequest(&request);
  EXPECT_TRUE(request.needs_prefill);
  EXPECT_FALSE(request.recovering);
  Run();
  Token(1, 0);
  DecodeEof(1);
  flow_->FillRouteRequest(&request);
  EXPECT_TRUE(request.recovering);
}

TEST_F(FlowTest, AnExtendedPlaceInTheQueueIsKept) {
  Begin();
  Do([&](auto*) { flow_->ExtendQueue(now_ + 2 * options_.queue_timeout); });
  Timer(options_.queue_timeout);
  EXPECT_TRUE(ends_.empty());
  Timer(options_.queue_timeout);
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FlowTest, QueueTimeoutEndsResourceExhausted) {
  Begin();
  Timer(options_.queue_timeout);
  EXPECT_THAT(last_, ElementsAre(Kind::kForgetAcquire, Kind::kEnd));
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kResourceExhausted);
  Grant(kD1, kP1);  // The answer was on its way.
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, NoRouteEndsTheRequestWithItsReason) {
  Begin();
  RouteError(absl::UnavailableError("no decode worker"));
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kUnavailable);
}

TEST_F(FlowTest, RefusedGoesElsewhereAndIsNoDeath) {
  Begin();
  for (int i = 1; i <= 10; ++i) {
    Grant(kD1, kP1);
    Refused(i, absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(ends_.empty());
    EXPECT_EQ(Credits(), 0);
    EXPECT_EQ(flow_->state(), RequestFlow::State::kQueued);
  }
  RouteRequest request;
  flow_->FillRouteRequest(&request);
  EXPECT_TRUE(request.resumed);
  EXPECT_THAT(request.dislike, ElementsAre(kD1));
  EXPECT_TRUE(request.avoid.empty());
}

// Decode gave up a landing that had begun: that was no time in the queue.
TEST_F(FlowTest, RefusedAsTooLateQueuesAfresh) {
  Begin();
  for (int i = 1; i <= options_.max_streams; ++i) {
    ASSERT_TRUE(ends_.empty()) << i;
    Grant(kD1, kP1);
    Advance(absl::ToDoubleMilliseconds(options_.queue_timeout));
    Refused(i, absl::StatusCode::kDeadlineExceeded);
    if (i == options_.max_streams) break;
    EXPECT_EQ(flow_->state(), RequestFlow::State::kQueued);
    EXPECT_EQ(flow_->NextDeadline(), now_ + options_.queue_timeout);
    Timer(absl::ZeroDuration());
  }
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, RefusedAsInvalidEndsTheRequest) {
  Begin();
  Grant(kD1, kP1);
  Refused(1, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ends_[0].message()), HasSubstr("d-1"));
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, LandingTimeoutLeavesTheStream) {
  Begin();
  Grant(kD1, kP1);
  Timer(options_.landing_timeout);
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease, Kind::kSendStop, Kind::kRecovery, Kind::kAcquire));
  Grant(kD2, kP2);
  Landing(1, 1);  // Of the stream that was left.
  EXPECT_TRUE(last_.empty());
  Stopped(1);
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease));
  EXPECT_EQ(credits_[kD1], 0);
}

TEST_F(FlowTest, FailedPrefillIsTriedOnTheNextWorkerThenLocally) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  PrefillFailed(1, 1);
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease, Kind::kRecovery, Kind::kAcquire));
  RouteRequest request;
  flow_->FillRouteRequest(&request);
  EXPECT_TRUE(request.prefill_only);
  EXPECT_THAT(request.dislike, ElementsAre(kP1));
  Grant({}, kP2);
  EXPECT_THAT(last_, ElementsAre(Kind::kSendAttempt));
  EXPECT_EQ(Last(Kind::kSendAttempt).attempt, 2);
  Landing(1, 1);  // An old one: fenced.
  EXPECT_TRUE(last_.empty());
  Landing(1, 2);
  EXPECT_EQ(Last(Kind::kOpenPrefill).worker, kP2);
  Failed(1, 1);  // Not current.
  EXPECT_TRUE(last_.empty());
  Failed(1, 2);
  EXPECT_THAT(last_, ElementsAre(Kind::kCancelPrefill, Kind::kRecovery, Kind::kSendPrefillLocally));
  EXPECT_EQ(Last(Kind::kSendPrefillLocally).attempt, 3);
  Landed(1, 3, "");
  PrefillFailed(1, 2);
  Token(1, 0, true);
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(flow_->summary().attempts, 3);
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, PrefillThatCannotEverEndsTheRequestWithItsClass) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  PrefillFailed(1, 1, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ends_[0].message()), HasSubstr("prefill worker p-1"));
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease, Kind::kSendStop, Kind::kEnd));
}

TEST_F(FlowTest, OlderAttemptThatLandsWinsTheRace) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  Timer(options_.transfer_timeout);
  EXPECT_THAT(last_, ElementsAre(Kind::kCancelPrefill, Kind::kRecovery, Kind::kAcquire));
  Grant({}, kP2);
  Landed(1, 1);  // In answer to Attempt(2): already landed.
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease));
  EXPECT_EQ(credits_[kP2], 0);
  PrefillFailed(1, 1);
  Token(1, 0, true);
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, LandedWhileWaitingForAPrefillCredit) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  PrefillEof(1, 1);
  const uint64_t ticket = ticket_;
  Landed(1, 1);
  EXPECT_THAT(last_, ElementsAre(Kind::kForgetAcquire));
  EXPECT_EQ(flow_->state(), RequestFlow::State::kRunning);
  ++credits_[kP2];
  Do([&](auto* a) { flow_->OnRoute(ticket, Route{.prefill = kP2, .num_tokens = 10}, now_, a); });
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease));
}

TEST_F(FlowTest, NoPrefillCreditMeansLocal) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  PrefillEof(1, 1);
  RouteError(absl::UnavailableError("no other prefill worker"));
  EXPECT_THAT(last_, ElementsAre(Kind::kSendPrefillLocally));
}

TEST_F(FlowTest, PrefillWorkerThatLeftBeforeTheLandingIsNotAsked) {
  Begin();
  Grant(kD1, kP1);
  Do([&](auto* a) { flow_->OnWorkerLeft(kP1, now_, a); });
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease));
  Landing(1, 1);
  EXPECT_THAT(last_, ElementsAre(Kind::kRecovery, Kind::kAcquire));
}

TEST_F(FlowTest, DecodeLostGoesOnElsewhereWithWhatTheClientHas) {
  Run();
  Token(1, 0);
  Token(1, 1);
  DecodeEof(1);
  EXPECT_THAT(last_, ElementsAre(Kind::kRelease, Kind::kRecovery, Kind::kAcquire));
  RouteRequest request;
  flow_->FillRouteRequest(&request);
  EXPECT_EQ(request.num_tokens, 12);
  EXPECT_EQ(request.fingerprint, "m");
  EXPECT_THAT(request.avoid, ElementsAre(kD1));
  Grant(kD2, kP1);
  EXPECT_THAT(flow_->emitted(), ElementsAre(100, 101));
  Token(1, 2);  // Of the dead one: never late.
  Landing(2, 1);
  PrefillDone(2, 1, 0, 9);
  Landed(2, 1);
  Token(2, 2, true);
  EXPECT_THAT(emitted_, ElementsAre(100, 101, 102));
  EXPECT_TRUE(ends_.at(0).ok());
  EXPECT_EQ(flow_->summary().recoveries, 1);
  EXPECT_EQ(flow_->summary().cached_tokens, 0);  // The client's prompt, not the recovery's.
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, SecondDeathIsPoison) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  PrefillEof(1, 1);
  DecodeEof(1);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, PrefillDeathAfterLandedIsNone) {
  Begin();
  Grant(kD1, kP1);
  Landing(1, 1);
  Landed(1, 1);
  PrefillEof(1, 1);
  DecodeEof(1);
  EXPECT_TRUE(ends_.empty());
}

TEST_F(FlowTest, TokenTimeoutMovesTheRequest) {
  Run();
  Token(1, 0);
  Timer(options_.token_timeout);
  EXPECT_THAT(last_, ElementsAre(Kind::kSendStop, Kind::kRecovery, Kind::kAcquire));
}

TEST_F(FlowTest, StreamsAreBounded) {
  Begin();
  for (int i = 1; i <= options_.max_streams; ++i) {
    Grant(kD1, kP1);
    Timer(options_.landing_timeout);
    Stopped(i);
  }
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Credits(), 0);
}

TEST_F(FlowTest, CancelInEveryStateStopsByMessageAndReadsOn) {
  for (int steps = 0; steps < 6; ++steps) {
    Make({});
    ends_.clear();
    credits_.clear();
    Begin();
    if (steps > 0) Grant(kD1, kP1);
    if (steps > 1) Landing(1, 1);
    if (steps > 2) Landed(1, 1);
    if (steps > 3) Token(1, 0);
    if (steps > 4) DecodeEof(1);
    ClientEnd(absl::CancelledError("gone"));
    ASSERT_EQ(ends_.size(), 1u) << steps;
    ClientEnd(absl::CancelledError("gone"));
    EXPECT_EQ(ends_.size(), 1u);
    if (steps > 0 && steps < 5) {
      EXPECT_FALSE(flow_->closed());
      Stopped(1);
    }
    if (steps > 1) PrefillFailed(1, 1);
    EXPECT_EQ(Credits(), 0) << steps;
    EXPECT_TRUE(flow_->closed());
  }
}

TEST_F(FlowTest, StopThatIsNotAnsweredCutsTheCall) {
  Run();
  ClientEnd(absl::CancelledError("gone"));
  EXPECT_EQ(flow_->NextDeadline(), now_ + options_.stop_timeout);
  Timer(options_.stop_timeout);
  EXPECT_THAT(last_, ElementsAre(Kind::kAbandonDecode, Kind::kRelease));
  EXPECT_TRUE(flow_->closed());
  DecodeEof(1);
  EXPECT_TRUE(last_.empty());
}

TEST_F(FlowTest, LostWorkerEndsItsCallsAtOnce) {
  Run();
  Token(1, 0);
  Do([&](auto* a) { flow_->OnWorkerLost(kD1, "silent", now_, a); });
  EXPECT_THAT(last_, ElementsAre(Kind::kAbandonDecode, Kind::kRelease, Kind::kRecovery, Kind::kAcquire));
}

TEST_F(FlowTest, WrongTokenOrderIsAnErrorNotText) {
  Run();
  Token(1, 0);
  Token(1, 2);
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(emitted_, ElementsAre(100));
  EXPECT_THAT(last_, ElementsAre(Kind::kSendStop, Kind::kEnd));
}

TEST_F(FlowTest, TokenBeforeLandedIsAnError) {
  Begin();
  Grant(kD1, kP1);
  Token(1, 0);
  EXPECT_EQ(ends_.at(0).code(), absl::StatusCode::kInternal);
}

// Any order of events: one end at most, every credit back once all calls have ended, tokens in order.
TEST_F(FlowTest, RandomEventsKeepTheBooks) {
  const std::vector<WorkerRef> decodes = {kD1, kD2}, prefills = {kP1, kP2};
  paces_recoveries_ = true;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    auto roll = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    Make({});
    ends_.clear();
    credits_.clear();
    emitted_.clear();
    all_.clear();
    ticket_ = 0;
    Begin();
    for (int step = 0; step < 40; ++step) {
      const int stream = 1 + roll(3), attempt = 1 + roll(3), next = static_cast<int>(emitted_.size());
      switch (roll(14)) {
        case 0: Grant(flow_->state() == RequestFlow::State::kRetry ? WorkerRef() : decodes[roll(2)], roll(4) ? prefills[roll(2)] : WorkerRef()); break;
        case 1: Landing(stream, attempt); break;
        case 2: Landed(stream, attempt); break;
        case 3: case 4: Token(stream, next, roll(6) == 0); break;
        case 5: Refused(stream, absl::StatusCode::kResourceExhausted); break;
        case 6: Failed(stream, attempt); break;
        case 7: Stopped(stream); break;
        case 8: DecodeEof(stream); break;
        case 9: PrefillDone(stream, attempt); break;
        case 10: PrefillFailed(stream, attempt); break;
        case 11: PrefillEof(stream, attempt); break;
        case 12: Timer(absl::Seconds(roll(100))); break;
        default: if (roll(20) == 0) ClientEnd(absl::CancelledError("gone")); break;
      }
      ASSERT_LE(ends_.size(), 1u);
    }
    ClientEnd(absl::CancelledError("gone"));
    for (int stream = 0; stream < 80; ++stream) {
      for (int attempt = 0; attempt < 8; ++attempt) PrefillEof(stream, attempt);
      DecodeEof(stream);
    }
    EXPECT_EQ(ends_.size(), 1u);
    EXPECT_TRUE(flow_->closed());
    for (const auto& [worker, count] : credits_) EXPECT_EQ(count, 0) << worker.id;
    for (const auto& [worker, count] : recoveries_) EXPECT_EQ(count, 0) << worker.id;
    for (size_t i = 0; i < emitted_.size(); ++i) EXPECT_EQ(emitted_[i], 100 + static_cast<int>(i));
  }
}

}  // namespace
}  // namespace baton
