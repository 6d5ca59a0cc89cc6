// SPDX-License-Identifier: Apache-2.0
// Streams that lost their worker land a few at a time at each worker that is left, and each is counted until it has landed or ended.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/admission.h"
#include "router/request_flow.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const WorkerRef kD1{"d-1", 1}, kD2{"d-2", 1}, kP1{"p-1", 1};

WorkerInfo Worker(const WorkerRef& ref, internal::WorkerRole role, int slots) {
  WorkerInfo info;
  info.ref = ref;
  info.identity.set_id(ref.id);
  info.identity.set_incarnation(ref.incarnation);
  info.identity.set_role(role);
  info.identity.set_model_fingerprint("m");
  info.identity.set_kv_layout("l");
  info.identity.set_vocab_size(100);
  info.identity.set_context_length(64);
  info.load.set_credit_slots(slots);
  info.load.set_block_size(16);
  info.load.set_credit_blocks(1000);
  info.has_load = true;
  info.load_sequence = 1;
  return info;
}

TEST(MaxLandingRecoveriesTest, IsAShareOfTheSlotsAndAtLeastOne) {
  const struct {
    double share;
    int slots, expected;
  } rows[] = {{0.25, 1, 1}, {0.25, 4, 1}, {0.25, 7, 1}, {0.25, 8, 2}, {0.25, 32, 8}, {0.25, 256, 64}, {1, 6, 6}, {0.01, 50, 1}, {0.5, 0, 1}};
  for (const auto& row : rows) EXPECT_EQ(MaxLandingRecoveries(row.share, row.slots), row.expected) << row.share << " of " << row.slots;
}

class RecoveryAdmissionTest : public ::testing::Test {
 protected:
  void Start(Disaggregate mode, const std::vector<WorkerInfo>& workers) {
    ticket_ = 0;
    admission_ = std::make_unique<Admission>(AdmissionOptions{.disaggregate = mode}, *CreateRoutePolicy("least_loaded"), 1);
    admission_->SetView(BuildClusterView(workers, {.disaggregate = mode}), now_, &grants_);
  }
  // The route of one more request; none while it waits.
  std::optional<Route> Ask(bool recovering) {
    grants_.clear();
    admission_->Enqueue({.ticket = ++ticket_, .resumed = recovering, .recovering = recovering, .num_tokens = 10}, now_, &grants_);
    if (grants_.empty()) return std::nullopt;
    EXPECT_TRUE(grants_[0].route.ok()) << grants_[0].route.status();
    return grants_[0].route.ok() ? std::optional(*grants_[0].route) : std::nullopt;
  }
  // Where those go who are granted by it.
  std::vector<WorkerRef> EndRecovery(const WorkerRef& worker) {
    grants_.clear();
    admission_->EndRecovery(worker, now_, &grants_);
    std::vector<WorkerRef> granted;
    for (const Grant& grant : grants_) granted.push_back(grant.route->decode);
    return granted;
  }

  const MonotonicTime now_ = absl::Seconds(100);
  std::unique_ptr<Admission> admission_;
  std::vector<Grant> grants_;
  uint64_t ticket_ = 0;
};

// 40 streams lose their worker at once: each of those left takes a quarter of its slots at a time, in every mode, and new work goes on.
TEST_F(RecoveryAdmissionTest, AFewLandAtATimeAtEachWorkerThatIsLeft) {
  for (const Disaggregate mode : {Disaggregate::kAlways, Disaggregate::kAdaptive, Disaggregate::kNever}) {
    SCOPED_TRACE(static_cast<int>(mode));
    Start(mode, {Worker(kD1, internal::DECODE, 32), Worker(kD2, internal::DECODE, 8), Worker(kP1, internal::PREFILL, 100)});
    std::map<WorkerRef, int> landing;
    for (int i = 0; i < 40; ++i) {
      const std::optional<Route> route = Ask(/*recovering=*/true);
      if (!route) continue;
      EXPECT_TRUE(route->recovering);
      ++landing[route->decode];
    }
    EXPECT_EQ(landing[kD1], 8);
    EXPECT_EQ(landing[kD2], 2);
    EXPECT_EQ(admission_->num_recoveries_waiting(), 30u);
    const std::optional<Route> fresh = Ask(/*recovering=*/false);
    ASSERT_TRUE(fresh.has_value());
    EXPECT_FALSE(fresh->recovering);
    // One that has landed, or has ended before, makes place for one.
    for (int i = 0; i < 3; ++i) EXPECT_THAT(EndRecovery(kD1), ElementsAre(kD1));
    EXPECT_THAT(EndRecovery(kD2), ElementsAre(kD2));
    EXPECT_EQ(admission_->num_recoveries_waiting(), 26u);
    // Those of a run that is gone change nothing.
    EXPECT_THAT(EndRecovery({"d-2", 99}), IsEmpty());
  }
}

TEST_F(RecoveryAdmissionTest, AllLandInTheEnd) {
  Start(Disaggregate::kAlways, {Worker(kD1, internal::DECODE, 16), Worker(kP1, internal::PREFILL, 100)});
  std::vector<WorkerRef> landing;
  for (int i = 0; i < 16; ++i) {
    if (const std::optional<Route> route = Ask(/*recovering=*/true)) landing.push_back(route->decode);
  }
  int landed = 0;
  while (!landing.empty()) {
    EXPECT_LE(landing.size(), 4u);
    const WorkerRef worker = landing.back();
    landing.pop_back();
    ++landed;
    for (const WorkerRef& next : EndRecovery(worker)) landing.push_back(next);
  }
  EXPECT_EQ(landed, 16);
  EXPECT_EQ(admission_->num_recoveries_waiting(), 0u);
}

// A flow whose first stream has broken after a token, and that has a route to d-2 since.
class RecoveryFlowTest : public ::testing::Test {
 protected:
  using Kind = FlowAction::Kind;
  RecoveryFlowTest() : flow_({}, 10, PhaseClock(Phase::kTokenise, now_)) {
    flow_.Begin(now_, &actions_);
    Granted(kD1, /*recovering=*/false);
    Landed(1);
    internal::DecodeEvent token;
    token.mutable_tokens()->add_tokens()->set_token_id(100);
    flow_.OnDecodeEvent(1, token, now_, &actions_);
    flow_.OnDecodeEnd(1, absl::UnavailableError("reset"), now_, &actions_);
    Granted(kD2, /*recovering=*/true);
    EXPECT_EQ(Ends(), 0);
  }
  void Granted(const WorkerRef& decode, bool recovering) {
    for (const FlowAction& action : actions_) {
      if (action.kind == Kind::kAcquire) ticket_ = action.ticket;
    }
    flow_.OnRoute(ticket_, Route{.decode = decode, .recovering = recovering, .group = {"m", "l"}, .num_tokens = 10}, now_, &actions_);
  }
  void Landed(int stream) {
    internal::DecodeEvent event;
    event.mutable_landed()->set_attempt(1);
    flow_.OnDecodeEvent(stream, event, now_, &actions_);
  }
  int Ends() const {
    const std::vector<Kind> kinds = Kinds();
    return static_cast<int>(std::count(kinds.begin(), kinds.end(), Kind::kEndRecovery));
  }
  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds;
    for (const FlowAction& action : actions_) kinds.push_back(action.kind);
    return kinds;
  }

  const MonotonicTime now_ = absl::Seconds(1000);
  RequestFlow flow_;
  FlowActions actions_;
  uint64_t ticket_ = 0;
};

TEST_F(RecoveryFlowTest, IsOverWhenItHasLanded) {
  Landed(2);
  EXPECT_EQ(Ends(), 1);
  flow_.OnDecodeEnd(2, absl::UnavailableError("reset"), now_, &actions_);
  EXPECT_EQ(Ends(), 1);
}

TEST_F(RecoveryFlowTest, ThatDoesNotLandIsOverBeforeItsCreditReturns) {
  actions_.clear();
  internal::DecodeEvent event;
  event.mutable_refused()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  flow_.OnDecodeEvent(2, event, now_, &actions_);
  EXPECT_EQ(Ends(), 1);
  ASSERT_GE(actions_.size(), 2u);
  EXPECT_EQ(actions_[0].kind, Kind::kEndRecovery);
  EXPECT_EQ(actions_[0].worker, kD2);
  EXPECT_EQ(actions_[1].kind, Kind::kRelease);
}

TEST_F(RecoveryFlowTest, WhoseRouteNobodyWantsIsOver) {
  actions_.clear();
  flow_.OnRoute(ticket_ + 1, Route{.decode = kD2, .recovering = true, .group = {"m", "l"}, .num_tokens = 10}, now_, &actions_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEndRecovery, Kind::kRelease));
}

}  // namespace
}  // namespace baton
