// SPDX-License-Identifier: Apache-2.0
// Registry, view, policies and admission: who is there, what pairs, who goes where.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/admission.h"
#include "router/prepared_request.h"
#include "router/status_details.h"
#include "router/worker_registry.h"
#include "router/worker_status.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

internal::WorkerIdentity Identity(const std::string& id, internal::WorkerRole role, uint64_t incarnation = 1) {
  internal::WorkerIdentity identity;
  identity.set_id(id);
  identity.set_incarnation(incarnation);
  identity.set_role(role);
  identity.set_address(id + ":1");
  identity.set_model_fingerprint("m");
  identity.set_kv_layout("l");
  identity.set_vocab_size(100);
  identity.set_context_length(64);
  return identity;
}

internal::WorkerLoad Load(int slots = 4) {
  internal::WorkerLoad load;
  load.set_credit_slots(slots);
  load.set_block_size(16);
  load.set_credit_blocks(1000);
  return load;
}

WorkerInfo Info(const internal::WorkerIdentity& identity, int slots = 4) {
  WorkerInfo info;
  info.ref = {identity.id(), identity.incarnation()};
  info.identity = identity;
  info.load = Load(slots);
  info.has_load = true;
  info.load_sequence = 1;
  return info;
}

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() : registry_({.view = {.vocab_size = 100}}) {
    registry_.SetListener({.on_change = [this] { ++changes_; },
                           .on_lost = [this](const WorkerRef& w, const std::string& why) { lost_.push_back(w.id + ": " + why); }});
  }
  uint64_t Add(const internal::WorkerIdentity& identity) {
    auto session = registry_.Connect(identity, now_);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    if (!session.ok()) return 0;
    EXPECT_TRUE(registry_.Report(*session, Load(), now_));
    return *session;
  }
  bool ready() { return registry_.View()->ready; }
  std::string reason() { return registry_.View()->reason; }

  MonotonicTime now_ = absl::Seconds(100);
  WorkerRegistry registry_;
  int changes_ = 0;
  std::vector<std::string> lost_;
};

TEST_F(RegistryTest, A16EveryOrderOfComingAndGoing) {
  EXPECT_THAT(reason(), HasSubstr("no workers"));
  const uint64_t d = Add(Identity("d-1", internal::DECODE));
  EXPECT_THAT(reason(), HasSubstr("no prefill worker"));
  const uint64_t p = Add(Identity("p-1", internal::PREFILL));
  EXPECT_TRUE(ready());
  registry_.Disconnect(d);
  EXPECT_THAT(reason(), HasSubstr("no decode worker"));
  Add(Identity("d-1", internal::DECODE, 2));
  EXPECT_TRUE(ready());
  registry_.Disconnect(p);
  EXPECT_FALSE(ready());
  EXPECT_TRUE(lost_.empty());
}

TEST_F(RegistryTest, NotReadyBeforeTheFirstLoad) {
  Add(Identity("p-1", internal::PREFILL));
  ASSERT_TRUE(registry_.Connect(Identity("d-1", internal::DECODE), now_).ok());
  EXPECT_THAT(reason(), HasSubstr("not reported"));
}

TEST_F(RegistryTest, SilenceOfTwoHeartbeatsIsOutAndAReportIsBack) {
  const uint64_t d = Add(Identity("d-1", internal::DECODE));
  const uint64_t p = Add(Identity("p-1", internal::PREFILL));
  registry_.Tick(now_);
  for (int i = 0; i < 6; ++i) {
    now_ += absl::Milliseconds(200);
    registry_.Report(p, Load(), now_);
    registry_.Tick(now_);
    EXPECT_EQ(ready(), i < 5) << i;
  }
  EXPECT_TRUE(lost_.empty());  // What runs there goes on.
  registry_.Report(d, Load(), now_);
  EXPECT_TRUE(ready());
}

// Its heartbeats come, its engine thread makes no step: no new work, and what waits for it there is not lost yet.
TEST_F(RegistryTest, D03AWorkerThatAnswersButDoesNotStepIsOut) {
  const uint64_t d = Add(Identity("d-1", internal::DECODE));
  Add(Identity("p-1", internal::PREFILL));
  ASSERT_TRUE(ready());
  internal::WorkerLoad stuck = Load();
  stuck.set_broken(true);
  stuck.set_reason("the engine thread made no step for 11s");
  registry_.Report(d, stuck, now_);
  EXPECT_FALSE(ready());
  EXPECT_THAT(reason(), HasSubstr("made no step for 11s"));
  EXPECT_TRUE(lost_.empty());
  registry_.Report(d, Load(), now_);
  EXPECT_TRUE(ready());
}

TEST_F(RegistryTest, SilenceOfSixHeartbeatsIsALossOnce) {
  const uint64_t d = Add(Identity("d-1", internal::DECODE));
  const uint64_t p = Add(Identity("p-1", internal::PREFILL));
  registry_.Tick(now_);
  for (int i = 1; i <= 20; ++i) {
    now_ += absl::Milliseconds(200);
    registry_.Report(p, Load(), now_);
    registry_.Tick(now_);
    EXPECT_EQ(lost_.size(), i <= 15 ? 0u : 1u) << i;  // More than 3 s.
  }
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_THAT(lost_[0], HasSubstr("d-1: worker d-1 is silent"));
  registry_.Disconnect(d);
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(RegistryTest, ASessionThatEndsInSilenceIsALoss) {
  const uint64_t d = Add(Identity("d-1", internal::DECODE));
  registry_.Tick(now_);
  for (int i = 1; i <= 6; ++i) registry_.Tick(now_ += absl::Milliseconds(200));
  EXPECT_TRUE(lost_.empty());
  registry_.Disconnect(d);
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_THAT(lost_[0], HasSubstr("session has ended"));
}

TEST_F(RegistryTest, OwnPauseIsNobodysSilence) {
  Add(Identity("d-1", internal::DECODE));
  Add(Identity("p-1", internal::PREFILL));
  registry_.Tick(now_);
  now_ += absl::Seconds(60);
  registry_.Tick(now_);
  EXPECT_TRUE(ready());
  EXPECT_TRUE(lost_.empty());
}

TEST_F(RegistryTest, ANewRunReplacesTheOldOne) {
  const uint64_t old = Add(Identity("d-1", internal::DECODE, 1));
  Add(Identity("d-1", internal::DECODE, 2));
  EXPECT_EQ(lost_.size(), 1u);
  EXPECT_FALSE(registry_.Report(old, Load(), now_));
  EXPECT_EQ(registry_.View()->workers.size(), 1u);
  auto elsewhere = Identity("d-1", internal::DECODE, 3);
  elsewhere.set_address("other:1");
  EXPECT_THAT(registry_.Connect(elsewhere, now_), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("other:1")));
}

TEST_F(RegistryTest, IdentityIsChecked) {
  auto identity = Identity("d-1", internal::DECODE);
  identity.clear_kv_layout();
  EXPECT_THAT(registry_.Connect(identity, now_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kv_layout")));
}

TEST_F(RegistryTest, A13MismatchNamesBothValues) {
  auto d = Identity("d-1", internal::DECODE);
  d.set_model_fingerprint("other");
  Add(d);
  Add(Identity("p-1", internal::PREFILL));
  EXPECT_FALSE(ready());
  EXPECT_THAT(registry_.View()->workers[0]->reason, HasSubstr("model fingerprint mismatch: m, decode worker d-1 has other"));
  auto small = Identity("d-2", internal::DECODE);
  small.set_vocab_size(99);
  Add(small);
  EXPECT_THAT(registry_.View()->workers[2]->reason, HasSubstr("vocabulary of 99 tokens, the router's tokenizer has 100"));
}

TEST(ClusterViewTest, A13AWorkerWithAnotherTokenizerIsNotUsed) {
  auto prefill = Identity("p-1", internal::PREFILL), decode = Identity("d-1", internal::DECODE);
  prefill.set_tokenizer_fingerprint("gguf-aaaa");
  decode.set_tokenizer_fingerprint("gguf-bbbb");
  const ClusterViewOptions options = {.vocab_size = 100, .tokenizer_fingerprint = "gguf-aaaa"};
  const auto view = BuildClusterView({Info(prefill), Info(decode)}, options);
  EXPECT_FALSE(view->ready);
  EXPECT_EQ(view->Find({"d-1", 1})->reason, "tokenizer mismatch: gguf-bbbb, the router has gguf-aaaa");
  EXPECT_THAT(view->reason, HasSubstr("no decode worker (d-1: tokenizer mismatch: gguf-bbbb, the router has gguf-aaaa)"));
  for (const char* equal : {"gguf-aaaa", "", "json-bbbb"}) {  // One that names none is not compared, nor one of another kind of file.
    decode.set_tokenizer_fingerprint(equal);
    EXPECT_TRUE(BuildClusterView({Info(prefill), Info(decode)}, options)->ready) << equal;
  }
  decode.set_tokenizer_fingerprint("gguf-bbbb");  // Nor is there anything to compare at a router that serves token ids only.
  prefill.set_tokenizer_fingerprint("gguf-bbbb");
  EXPECT_TRUE(BuildClusterView({Info(prefill), Info(decode)}, {.vocab_size = 0})->ready);
}

void AddEndpoint(WorkerInfo* worker, const std::string& transport, const std::string& host) {
  worker->identity.add_transports(transport);
  internal::KvEndpoint* endpoint = worker->identity.add_kv_endpoints();
  endpoint->set_transport(transport);
  endpoint->set_host(host);
}

TEST(ClusterViewTest, BlockSizeAndTypeOfKvMayDifferInAGroup) {
  WorkerInfo decode = Info(Identity("d-1", internal::DECODE)), prefill = Info(Identity("p-1", internal::PREFILL));
  decode.identity.set_kv_layout("kv1:L2:H2:D8:B16:f16:r0/1");
  prefill.identity.set_kv_layout("kv1:L2:H2:D8:B32:f32:r0/1");
  EXPECT_FALSE(BuildClusterView({decode, prefill}, {})->ready);  // Workers that do not say what they can convert.
  decode.identity.set_kv_geometry("kvg1:L2:H2:D8:r0/1");
  prefill.identity.set_kv_geometry("kvg1:L2:H2:D8:r0/1");
  EXPECT_TRUE(BuildClusterView({decode, prefill}, {})->ready);
  prefill.identity.set_kv_geometry("kvg1:L2:H4:D8:r0/1");
  const auto view = BuildClusterView({decode, prefill}, {});
  EXPECT_FALSE(view->ready);
  EXPECT_THAT(view->workers[0]->reason, HasSubstr("kv layout mismatch: kv1:L2:H2:D8:B32:f32:r0/1, decode worker d-1 has kv1:"));
}

TEST(ClusterViewTest, APairNeedsATransportWhereBothAre) {
  WorkerInfo decode = Info(Identity("d-1", internal::DECODE)), prefill = Info(Identity("p-1", internal::PREFILL));
  AddEndpoint(&decode, "shm", "machine a");
  AddEndpoint(&decode, "grpc", "");
  EXPECT_EQ(BestTransport(prefill, decode), "grpc");  // An older worker.
  AddEndpoint(&prefill, "shm", "machine b");
  EXPECT_EQ(BestTransport(prefill, decode), "");
  const auto apart = BuildClusterView({decode, prefill}, {});
  EXPECT_FALSE(apart->ready);
  EXPECT_THAT(apart->reason, HasSubstr("no KV transport in common: shm,grpc, prefill worker p-1 has shm"));
  AddEndpoint(&prefill, "grpc", "");
  EXPECT_EQ(BestTransport(prefill, decode), "grpc");
  prefill.identity.mutable_kv_endpoints(0)->set_host("machine a");
  EXPECT_EQ(BestTransport(prefill, decode), "shm");
  EXPECT_TRUE(BuildClusterView({decode, prefill}, {})->ready);
}

TEST(ClusterViewTest, StatusSaysHowEachPairMovesKv) {
  WorkerInfo decode = Info(Identity("d-1", internal::DECODE)), prefill = Info(Identity("p-1", internal::PREFILL));
  for (WorkerInfo* worker : {&decode, &prefill}) {
    AddEndpoint(worker, "shm", "machine");
    AddEndpoint(worker, "grpc", "");
  }
  const auto links = [&] {
    const auto view = BuildClusterView({decode, prefill}, {});
    EXPECT_EQ(WorkerStatus(*view->workers[1], *view).links_size(), 0);  // Who receives.
    const v1::Worker status = WorkerStatus(*view->workers[0], *view);
    EXPECT_EQ(status.links_size(), 1);
    return status.links(0);
  };
  EXPECT_EQ(links().worker(), "d-1");
  EXPECT_EQ(links().transport(), "shm");
  internal::KvLinkState* used = prefill.load.add_kv_links();
  used->set_worker("d-1");
  used->set_transport("grpc");
  used->set_fallback("shm: broke");
  EXPECT_EQ(links().transport(), "grpc");
  EXPECT_EQ(links().reason(), "shm: broke");
}

WorkerInfo WithContext(const std::string& id, internal::WorkerRole role, int context, const std::string& layout = "l") {
  auto identity = Identity(id, role);
  identity.set_context_length(context);
  identity.set_kv_layout(layout);
  return Info(identity);
}

TEST(ClusterViewTest, ContextsAreWhatPairsHold) {
  const std::vector<WorkerInfo> workers = {
      WithContext("d-1", internal::DECODE, 64), WithContext("d-2", internal::DECODE, 48),
      WithContext("p-1", internal::PREFILL, 32), WithContext("p-2", internal::PREFILL, 40),
      WithContext("p-3", internal::PREFILL, 80, "other")};
  const std::vector<ContextLimit> pairs = {{48, 40}, {64, 40}}, alone = {{48, 48}, {64, 64}};
  EXPECT_EQ(BuildClusterView(workers, {})->contexts, pairs);
  EXPECT_EQ(BuildClusterView(workers, {.disaggregate = Disaggregate::kNever})->contexts, alone);
  EXPECT_EQ(BuildClusterView(workers, {})->context_length(), 64);
  EXPECT_EQ(BuildClusterView({workers[0]}, {})->context_length(), 0);
  const ModelLimits limits{.contexts = pairs};
  EXPECT_EQ(limits.ShortestFor(10), 48);  // What a request without max_tokens gets.
  EXPECT_EQ(limits.LongestFor(10), 64);
  EXPECT_EQ(limits.ShortestFor(41), 0);  // No prefill worker takes it.
  EXPECT_EQ(limits.LongestFor(41), 0);
}

class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() { Make({}); }
  void Make(const AdmissionOptions& options, absl::string_view policy = "least_loaded") {
    admission_ = std::make_unique<Admission>(options, *CreateRoutePolicy(policy), 1);
    options_ = options;
  }
  void View(const std::vector<WorkerInfo>& workers) {
    admission_->SetView(BuildClusterView(workers, {.disaggregate = options_.disaggregate}), now_, &grants_);
  }
  void Pair() { View({Info(Identity("d-1", internal::DECODE)), Info(Identity("p-1", internal::PREFILL))}); }
  Grant Ask(RouteRequest request = {}) {
    grants_.clear();
    request.ticket = ++ticket_;
    if (request.num_tokens == 0) request.num_tokens = 10;
    admission_->Enqueue(request, now_, &grants_);
    return grants_.empty() ? Grant{0, absl::InternalError("waits")} : grants_.back();
  }
  const WorkerRef d1{"d-1", 1}, d2{"d-2", 1}, p1{"p-1", 1}, p2{"p-2", 1};
  AdmissionOptions options_;
  std::unique_ptr<Admission> admission_;
  std::vector<Grant> grants_;
  uint64_t ticket_ = 0;
  MonotonicTime now_ = absl::Seconds(100);
};

TEST_F(AdmissionTest, GrantsAPairAndCountsCredits) {
  Pair();
  for (int i = 0; i < 4; ++i) {
    const Grant grant = Ask();
    ASSERT_TRUE(grant.route.ok());
    EXPECT_EQ(grant.route->decode, d1);
    EXPECT_EQ(grant.route->prefill, p1);
  }
  EXPECT_EQ(Ask().ticket, 0u);
  EXPECT_EQ(admission_->num_waiting(), 1u);
  grants_.clear();
  admission_->Release(d1, 10, false, now_, &grants_);
  EXPECT_TRUE(grants_.empty());  // No credit of a prefill worker yet.
  admission_->Release(p1, 10, false, now_, &grants_);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].ticket, 5u);
  EXPECT_EQ(admission_->open_calls(d1), 4);
}

class AdaptiveAdmissionTest : public AdmissionTest {
 protected:
  // d-1 generates for `streams`, p-1 has a credit for one call; both compute a token in 1 ms.
  void Cluster(int streams) {
    Make({.disaggregate = Disaggregate::kAdaptive,
          .placement = {.local_share = 0.5, .handoff_ms = 4, .stream_penalty = 1}});
    View({Decode(streams), Prefill()});
  }
  // As of a report of its own.
  WorkerInfo Decode(int streams) {
    WorkerInfo worker = Reported(Info(Identity("d-1", internal::DECODE)));
    worker.load.set_running(streams);
    return worker;
  }
  WorkerInfo Prefill() { return Reported(Info(Identity("p-1", internal::PREFILL), 1)); }
  WorkerInfo Reported(WorkerInfo worker) {
    worker.load_sequence = ++reports_;
    worker.identity.set_context_length(100000);
    worker.load.mutable_prefill()->set_tokens_per_second(1000);
    worker.load.set_credit_blocks(100000);
    return worker;
  }
  uint64_t reports_ = 0;
};

TEST_F(AdaptiveAdmissionTest, ShortPromptsStayAndLongOnesGo) {
  Cluster(8);
  const Grant brief = Ask({.num_tokens = 5}), document = Ask({.num_tokens = 66});
  ASSERT_TRUE(brief.route.ok() && document.route.ok());
  EXPECT_FALSE(brief.route->prefill);
  EXPECT_EQ(brief.route->reason, "short");
  EXPECT_EQ(document.route->prefill, p1);
  EXPECT_EQ(document.route->reason, "long");
  ASSERT_TRUE(document.route->costs.has_value());
  EXPECT_EQ(document.route->costs->local_streams, 9);  // The first one is about to generate there, too.
}

// What has ended since a worker's report keeps no prompt away; what other routers have there does.
TEST_F(AdaptiveAdmissionTest, StreamsThatHaveEndedAreNoStreams) {
  Cluster(0);
  ASSERT_FALSE(Ask({.num_tokens = 100}).route->prefill);  // Nobody is there: sooner here.
  View({Decode(1), Prefill()});                          // d-1 reports that one stream.
  grants_.clear();
  admission_->Release(d1, 100, false, now_, &grants_);
  EXPECT_EQ(Ask({.num_tokens = 100}).route->reason, "sooner here");
  grants_.clear();
  admission_->Release(d1, 100, false, now_, &grants_);
  View({Decode(3), Prefill()});
  const Grant grant = Ask({.num_tokens = 100});
  EXPECT_EQ(grant.route->prefill, p1);
  EXPECT_EQ(grant.route->costs->local_streams, 3);
}

TEST_F(AdaptiveAdmissionTest, ABusyPrefillWorkerIsWaitedForOnlyWhileThatIsSooner) {
  Cluster(8);
  ASSERT_EQ(Ask({.num_tokens = 1000}).route->prefill, p1);
  // 2,200 ms here, or 1,000 ms of waiting and 1,100 of its own: not sooner here.
  EXPECT_EQ(Ask({.num_tokens = 1100}).ticket, 0u);
  // Whoever needs no prefill worker does not wait behind it.
  EXPECT_EQ(Ask({.num_tokens = 5}).route->reason, "short");
  EXPECT_EQ(admission_->num_waiting(), 1u);
  grants_.clear();
  admission_->Release(p1, 1000, false, now_, &grants_);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].route->prefill, p1);
  // 200 ms here, or 1,000 ms of waiting.
  EXPECT_EQ(Ask({.num_tokens = 100}).route->reason, "prefill busy");
}

TEST_F(AdaptiveAdmissionTest, DecodeServesAloneWhileThereIsNoPrefillWorker) {
  Make({.disaggregate = Disaggregate::kAdaptive});
  View({Info(Identity("d-1", internal::DECODE))});
  const Grant grant = Ask({.num_tokens = 60});
  ASSERT_TRUE(grant.route.ok()) << grant.route.status();
  EXPECT_EQ(grant.route->reason, "no prefill worker");
  EXPECT_FALSE(grant.route->costs.has_value());
}

TEST_F(AdmissionTest, NoWorkersRefusesNewAndKeepsBegunUntilTheOutageIsLong) {
  EXPECT_THAT(Ask().route, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no workers")));
  EXPECT_EQ(RetryAfter(grants_.back().route.status()), absl::Seconds(1));
  EXPECT_EQ(Ask({.resumed = true}).ticket, 0u);
  now_ += absl::Milliseconds(1499);
  admission_->Tick(now_, &grants_);
  EXPECT_TRUE(grants_.empty());
  now_ += absl::Milliseconds(1);
  admission_->Tick(now_, &grants_);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_THAT(grants_[0].route, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no workers")));
}

TEST_F(AdmissionTest, BegunRequestsWaitForCreditsLongerThanForWorkers) {
  Pair();
  for (int i = 0; i < 4; ++i) Ask();
  EXPECT_EQ(Ask({.resumed = true}).ticket, 0u);
  now_ += absl::Seconds(10);
  admission_->Tick(now_, &grants_);
  EXPECT_TRUE(grants_.empty());
}

TEST_F(AdmissionTest, WithoutPrefillOnlyBegunRequestsGoLocal) {
  View({Info(Identity("d-1", internal::DECODE))});
  EXPECT_THAT(Ask().route, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no prefill worker")));
  const Grant grant = Ask({.resumed = true});
  ASSERT_TRUE(grant.route.ok());
  EXPECT_FALSE(grant.route->prefill);
  EXPECT_EQ(grant.route->reason, "no prefill worker");
  EXPECT_THAT(Ask({.resumed = true, .prefill_only = true, .group = {"m", "l"}}).route,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("prefill")));
}

TEST_F(AdmissionTest, RefusedWorkerGetsNothingUntilItsLoadIsNewer) {
  Pair();
  ASSERT_TRUE(Ask().route.ok());
  admission_->Release(p1, 10, false, now_, &grants_);
  admission_->Release(d1, 10, true, now_, &grants_);
  EXPECT_EQ(Ask({.resumed = true}).ticket, 0u);
  Pair();  // The same report.
  EXPECT_TRUE(grants_.empty());
  WorkerInfo decode = Info(Identity("d-1", internal::DECODE));
  decode.load_sequence = 2;
  View({decode, Info(Identity("p-1", internal::PREFILL))});
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(AdmissionTest, FreeBlocksAreAHintUntilTheNextReport) {
  WorkerInfo decode = Info(Identity("d-1", internal::DECODE));
  decode.load.set_credit_blocks(1);
  const WorkerInfo prefill = Info(Identity("p-1", internal::PREFILL));
  View({decode, prefill});
  EXPECT_TRUE(Ask().route.ok());
  EXPECT_EQ(Ask().ticket, 0u);  // 20 tokens do not fit 16.
  decode.load_sequence = 2;
  View({decode, prefill});
  EXPECT_EQ(grants_.size(), 1u);
}

TEST_F(AdmissionTest, QueueIsBoundedAndPriorityGoesFirst) {
  Make({.max_queue = 2});
  Pair();
  for (int i = 0; i < 4; ++i) Ask();
  Ask({.priority = 0});
  Ask({.priority = 5});
  EXPECT_THAT(Ask().route, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("max_queue is 2")));
  EXPECT_GE(*RetryAfter(grants_.back().route.status()), absl::Seconds(1));
  Ask({.resumed = true});
  grants_.clear();
  for (int i = 0; i < 3; ++i) {
    admission_->Release(d1, 10, false, now_, &grants_);
    admission_->Release(p1, 10, false, now_, &grants_);
  }
  ASSERT_EQ(grants_.size(), 3u);
  EXPECT_EQ(grants_[0].ticket, 8u);  // Resumed.
  EXPECT_EQ(grants_[1].ticket, 6u);  // Priority 5.
  EXPECT_EQ(grants_[2].ticket, 5u);
}

// Who would get its turn too late hears so at once, and when to come again; as long as nobody knows how fast it goes all may hope.
TEST_F(AdmissionTest, WhoCannotMeetItsDeadlineIsRefusedAtOnce) {
  Pair();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Ask().route.ok());
  const auto in = [&](int seconds) { return now_ + absl::Seconds(seconds); };
  for (int i = 0; i < 8; ++i) ASSERT_EQ(Ask({.deadline = in(3)}).ticket, 0u);
  for (int i = 0; i < 4; ++i) {  // One every 2 s.
    now_ += absl::Seconds(2);
    grants_.clear();
    admission_->Release(d1, 10, false, now_, &grants_);
    admission_->Release(p1, 10, false, now_, &grants_);
    ASSERT_EQ(grants_.size(), 1u);
  }
  ASSERT_EQ(admission_->num_waiting(), 4u);
  EXPECT_THAT(Ask({.deadline = in(8)}).route, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("free in 10s (4 requests are before this one)")));
  EXPECT_EQ(RetryAfter(grants_.back().route.status()), absl::Seconds(2));
  EXPECT_EQ(admission_->num_waiting(), 4u);
  EXPECT_EQ(Ask({.deadline = in(10)}).ticket, 0u);
  EXPECT_EQ(Ask({.priority = 1, .deadline = in(3)}).ticket, 0u);               // It goes first.
  EXPECT_EQ(Ask({.tenant = "another", .deadline = in(5)}).ticket, 0u);         // After that one, by its turn.
  EXPECT_EQ(Ask({.resumed = true, .deadline = in(1)}).ticket, 0u);             // What had begun is never refused.
  EXPECT_EQ(Ask().ticket, 0u);                                                 // Nor who has time.
  EXPECT_THAT(Ask({.priority = -1, .deadline = in(15)}).route, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("requests are before")));
  // An empty queue says nothing about the next one.
  grants_.clear();
  for (uint64_t ticket = 1; ticket <= ticket_; ++ticket) admission_->Forget(ticket);
  ASSERT_EQ(admission_->num_waiting(), 0u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Ask({.deadline = in(1)}).ticket, 0u);
}

TEST_F(AdmissionTest, TenantsTakeTurnsByTheirWeights) {
  Pair();
  for (int i = 0; i < 4; ++i) Ask();                              // No credit is left.
  for (int i = 0; i < 6; ++i) Ask({.tenant = "a"});               // 5 to 10.
  for (int i = 0; i < 6; ++i) Ask({.tenant = "b", .weight = 2});  // 11 to 16: come later, and two are worth one of a's.
  Ask({.priority = 1, .tenant = "a"});                            // 17: priority goes before turns, and costs none.
  std::vector<uint64_t> order;
  const auto take = [&](int count) {
    grants_.clear();
    for (int i = 0; i < count; ++i) {
      admission_->Release(d1, 10, false, now_, &grants_);
      admission_->Release(p1, 10, false, now_, &grants_);
    }
    for (const Grant& grant : grants_) order.push_back(grant.ticket);
  };
  take(7);
  EXPECT_THAT(order, ::testing::ElementsAre(17, 5, 11, 12, 6, 13, 14));
  Ask({.tenant = "c"});  // 18: as if it had been there all the time, but not longer.
  order.clear();
  take(7);
  EXPECT_THAT(order, ::testing::ElementsAre(18, 7, 15, 16, 8, 9, 10));
}

TEST_F(AdmissionTest, AvoidIsStrictAndDislikeIsNot) {
  View({Info(Identity("d-1", internal::DECODE)), Info(Identity("d-2", internal::DECODE)), Info(Identity("p-1", internal::PREFILL))});
  EXPECT_EQ(Ask({.resumed = true, .avoid = {d1}}).route->decode, d2);
  EXPECT_EQ(Ask({.resumed = true, .dislike = {d2}}).route->decode, d1);
  EXPECT_TRUE(Ask({.resumed = true, .dislike = {d1, d2}}).route.ok());
  EXPECT_EQ(Ask({.resumed = true, .avoid = {d1, d2}}).ticket, 0u);
}

TEST_F(AdmissionTest, ADifferentModelNeverContinuesAText) {
  auto other = Identity("d-2", internal::DECODE);
  other.set_model_fingerprint("n");
  auto other_prefill = Identity("p-2", internal::PREFILL);
  other_prefill.set_model_fingerprint("n");
  View({Info(other), Info(other_prefill)});
  EXPECT_EQ(Ask({.resumed = true, .fingerprint = "m"}).ticket, 0u);
  EXPECT_TRUE(Ask({.resumed = true, .fingerprint = "n"}).route.ok());
}

TEST_F(AdmissionTest, ARequestGoesWhereItFits) {
  View({WithContext("d-1", internal::DECODE, 64), WithContext("d-2", internal::DECODE, 500),
        WithContext("p-1", internal::PREFILL, 64), WithContext("p-2", internal::PREFILL, 500)});
  for (int i = 0; i < 4; ++i) {
    const Grant grant = Ask({.num_tokens = 100, .total_tokens = 400});
    ASSERT_TRUE(grant.route.ok());
    EXPECT_EQ(grant.route->decode, d2);
    EXPECT_EQ(grant.route->prefill, p2);
  }
  // The long ones wait for the long worker; what the short one can take passes them, and leaves the long one alone.
  EXPECT_EQ(Ask({.num_tokens = 100, .total_tokens = 400}).ticket, 0u);
  const Grant small = Ask({.num_tokens = 10, .total_tokens = 50});
  ASSERT_TRUE(small.route.ok()) << small.route.status();
  EXPECT_EQ(small.route->decode, d1);
  EXPECT_EQ(Ask({.num_tokens = 10, .total_tokens = 100}).ticket, 0u);
  const auto refused = Ask({.num_tokens = 10, .total_tokens = 501}).route;
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("needs a context of 501 tokens, the longest left is 500")));
}

TEST_F(AdmissionTest, WithoutReasonNobodyIsRefused) {
  View({Info(Identity("d-1", internal::DECODE)), Info(Identity("p-1", internal::PREFILL))});
  EXPECT_EQ(Ask({.resumed = true, .fingerprint = "gone"}).ticket, 0u);
  EXPECT_EQ(Ask({.resumed = true, .avoid = {d1}}).ticket, 0u);
  now_ += absl::Seconds(2);
  admission_->Tick(now_, &grants_);
  ASSERT_EQ(grants_.size(), 2u);
  EXPECT_THAT(grants_[0].route, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("model gone")));
  EXPECT_THAT(grants_[1].route, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("did not fail this request (1 did)")));
}

TEST_F(AdmissionTest, WithNothingToPrefillNoPrefillWorkerIsWaitedFor) {
  View({Info(Identity("d-1", internal::DECODE), 100), Info(Identity("p-1", internal::PREFILL))});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Ask().route.ok());
  EXPECT_EQ(Ask().ticket, 0u);
  const Grant grant = Ask({.num_tokens = 1, .needs_prefill = false});
  ASSERT_TRUE(grant.route.ok());
  EXPECT_EQ(grant.route->decode, d1);
  EXPECT_FALSE(grant.route->prefill);
  EXPECT_FALSE(grant.route->probe);
  EXPECT_EQ(Ask().ticket, 0u);
  // A prompt that may be cached there is asked after; elsewhere it waits like all.
  const Grant cached = Ask({.cached_on = d1});
  ASSERT_TRUE(cached.route.ok());
  EXPECT_TRUE(cached.route->probe);
  EXPECT_EQ(Ask({.cached_on = d2}).ticket, 0u);
}

TEST_F(AdmissionTest, WithPrefillFreeACachedPromptGoesAsAll) {
  Pair();
  const Grant grant = Ask({.cached_on = d1});
  ASSERT_TRUE(grant.route.ok());
  EXPECT_FALSE(grant.route->probe);
  EXPECT_EQ(grant.route->prefill, p1);
}

TEST_F(AdmissionTest, ASiblingGoesWhereTheFirstChoiceLanded) {
  for (const Disaggregate mode : {Disaggregate::kAlways, Disaggregate::kAdaptive, Disaggregate::kNever}) {
    Make({.disaggregate = mode, .max_queue = 0});
    View({Info(Identity("d-1", internal::DECODE)), Info(Identity("d-2", internal::DECODE), 2), Info(Identity("p-1", internal::PREFILL))});
    const RouteRequest sibling{.resumed = true, .num_tokens = 40, .total_tokens = 50, .sibling_at = d2};
    for (int i = 0; i < 2; ++i) {
      const Grant grant = Ask(sibling);
      ASSERT_TRUE(grant.route.ok()) << grant.route.status();
      EXPECT_EQ(grant.route->decode, d2);
      EXPECT_FALSE(grant.route->prefill);
      EXPECT_TRUE(grant.route->sibling);
      EXPECT_EQ(grant.route->probe, mode != Disaggregate::kNever);
      EXPECT_EQ(grant.route->num_tokens, 16);  // All else is there.
    }
    // No room is left there: as any other.
    const Grant grant = Ask(sibling);
    ASSERT_TRUE(grant.route.ok()) << grant.route.status();
    EXPECT_EQ(grant.route->decode, d1);
    EXPECT_FALSE(grant.route->sibling || grant.route->probe);
    EXPECT_EQ(grant.route->num_tokens, 40);
  }
}

TEST_F(AdmissionTest, RecoveriesGoBeforeAllAndPastThePrefillSlots) {
  Make({.recovery_share = 1});
  View({Info(Identity("d-1", internal::DECODE), 6), Info(Identity("p-1", internal::PREFILL))});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Ask().route.ok());
  EXPECT_EQ(Ask({.resumed = true}).ticket, 0u);
  EXPECT_TRUE(Ask({.resumed = true, .recovering = true}).route.ok());
  EXPECT_TRUE(Ask({.resumed = true, .recovering = true}).route.ok());
  EXPECT_EQ(Ask({.resumed = true, .recovering = true}).ticket, 0u);  // Decode's slots are its own.
  grants_.clear();
  admission_->Release(d1, 10, false, now_, &grants_);
  ASSERT_EQ(grants_.size(), 1u);
  EXPECT_EQ(grants_[0].ticket, ticket_);
}

TEST_F(AdmissionTest, A38LoadIsSpreadEvenly) {
  for (const char* policy : {"least_loaded", "round_robin"}) {
    Make({}, policy);
    std::vector<WorkerInfo> workers = {Info(Identity("d-1", internal::DECODE), 100)};
    for (int i = 1; i <= 4; ++i) workers.push_back(Info(Identity("p-" + std::to_string(i), internal::PREFILL), 100));
    View(workers);
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(Ask().route.ok());
    for (int i = 1; i <= 4; ++i) EXPECT_EQ(admission_->open_calls({"p-" + std::to_string(i), 1}), 10) << policy;
  }
}

TEST_F(AdmissionTest, A34ForgottenRequestsLeaveNothing) {
  Pair();
  for (int i = 0; i < 4; ++i) Ask();
  for (int i = 0; i < 100; ++i) {
    Ask();
    admission_->Forget(ticket_);
  }
  EXPECT_EQ(admission_->num_waiting(), 0u);
  EXPECT_EQ(admission_->open_calls(d1), 4);
}

TEST(RoutePolicyTest, UnknownNameListsTheKnown) {
  EXPECT_THAT(CreateRoutePolicy("best").status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("least_loaded")));
}

}  // namespace
}  // namespace baton
