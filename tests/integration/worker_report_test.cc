// SPDX-License-Identifier: Apache-2.0
// What workers say of themselves when something goes wrong: counters that count it once, and no work for who cannot do any.
#include <future>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/worker_pair.h"
#include "tests/support/faulty_kv_link.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tests/support/transport_pair.h"

namespace baton {
namespace {

using namespace ::baton::testing;
using ::testing::HasSubstr;

std::vector<int32_t> Prompt(uint32_t seed, int num_tokens) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(num_tokens));
  for (int32_t& token : tokens) token = static_cast<int32_t>(3 + rng() % 256);
  return tokens;
}

WorkerOptions OptionsOf(internal::WorkerRole role, TransportKind kind) {
  WorkerOptions options;
  options.role = role;
  options.model_path = WriteTempFile("worker_report_test.gguf", TinyModel().Build());
  options.backend.num_threads = 1;
  options.kv_memory_bytes = 4 << 20;
  options.transports = {kind};
  return options;
}

double Transfers(WorkerRuntime& runtime, absl::string_view result) {
  return Metric(runtime, "baton_kv_transfers_total", absl::StrCat("result=\"", result, "\""));
}

class WorkerReportTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  // A Start that decode has reserved blocks for.
  struct Reserved {
    std::unique_ptr<DecodeStream> decode;
    internal::DecodeRequest start;
    internal::LandingEvent landing;
  };
  static Reserved Reserve(TestDecodeWorker& d, uint64_t id) {
    Reserved reserved{OpenDecode(d.server->address()), MakeStart(*d.runtime, id, Prompt(static_cast<uint32_t>(id), 100), 3, false), {}};
    reserved.decode->Send(reserved.start);
    reserved.landing = NextLanding(reserved);
    return reserved;
  }
  static internal::LandingEvent NextLanding(Reserved& reserved) {
    const auto event = reserved.decode->Next();
    EXPECT_TRUE(event.has_value() && event->has_landing()) << (event ? event->DebugString() : "nothing");
    return event ? event->landing() : internal::LandingEvent();
  }
  // The attempt that failed.
  static int NextFailure(Reserved& reserved) {
    const auto event = reserved.decode->Next();
    EXPECT_TRUE(event.has_value() && event->has_failed()) << (event ? event->DebugString() : "nothing");
    return event ? event->failed().attempt() : 0;
  }
  static std::optional<internal::PrefillEvent> Prefill(TestPrefillWorker& p, const Reserved& reserved) {
    auto prefill = OpenPrefill(p.server->address());
    prefill->Send(MakePrefill(reserved.start, reserved.landing));
    return prefill->Next();
  }
  // A writer of the test's own. Its manifest is another model's, unless something happens to the link before.
  static void WriteBadly(TestDecodeWorker& d, const Reserved& reserved, const LinkFaults& faults) {
    const KvLayout layout = d.runtime->pool()->layout();
    const auto pool = FilledPool(layout, 8, 1);
    const internal::KvEndpoint& endpoint = reserved.landing.kv_endpoints(0);
    const auto sender = MakeSender({GetParam(), TransportHost(GetParam()), endpoint.address()},
                                   {.pool = pool.get(), .self = {"p-bad", 5}, .model = d.runtime->model().fingerprint(),
                                    .decorate = [faults](std::unique_ptr<KvLink> link) -> std::unique_ptr<KvLink> {
                                      return std::make_unique<FaultyKvLink>(std::move(link), faults);
                                    }});
    const TestJob job{.transfer = {reserved.start.start().transfer().router_incarnation(), reserved.start.start().transfer().stream()},
                      .attempt = reserved.landing.attempt(),
                      .blocks = {0, 1, 2, 3, 4, 5, 6},
                      .num_tokens = 99,
                      .peer_incarnation = d.runtime->incarnation()};
    RunningJob running(sender.get(), job);
    running.PushAll(layout.num_layers);
    EXPECT_EQ(running.Wait().value_or(absl::UnknownError("never done")).ok(), !faults.cut_after_bytes.has_value());
  }
};

// D09, the transfers: three fail at decode, three at prefill, two are given up; the rest arrives.
TEST_P(WorkerReportTest, EachTransferIsCountedOnceByHowItEnded) {
  TestPrefillWorker p(OptionsOf(internal::PREFILL, GetParam()));
  TestDecodeWorker d(OptionsOf(internal::DECODE, GetParam()));
  for (uint64_t id = 1; id <= 3; ++id) {
    Reserved reserved = Reserve(d, id);
    LinkFaults faults;
    // What gRPC has not sent yet goes down with its link: decode may never hear of that attempt.
    if (id == 2 && GetParam() != TransportKind::kGrpc) faults.cut_after_bytes = 1;
    WriteBadly(d, reserved, faults);
    // Decode counts an attempt that it has heard of. Of one that writes for itself it says nothing when the link breaks, but then
    // the break came after its grant.
    if (!faults.cut_after_bytes || GetParam() != TransportKind::kShm) {
      EXPECT_EQ(NextFailure(reserved), 1);
    }
    internal::DecodeRequest attempt;
    attempt.mutable_attempt()->set_attempt(2);
    reserved.decode->Send(attempt);
    reserved.landing = NextLanding(reserved);
    EXPECT_EQ(reserved.landing.attempt(), 2);
    const auto done = Prefill(p, reserved);
    EXPECT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "nothing");
    EXPECT_TRUE(ReadTokens(reserved.decode.get()).has_value());
  }
  EXPECT_EQ(Transfers(*d.runtime, "failed"), 3);
  EXPECT_EQ(Transfers(*d.runtime, "ok"), 3);
  EXPECT_EQ(Transfers(*d.runtime, "cancelled"), 0);
  EXPECT_EQ(Transfers(*p.runtime, "ok"), 3);
  EXPECT_EQ(Transfers(*p.runtime, "failed"), 0);
  std::vector<Reserved> orphans;
  {
    TestDecodeWorker dead(OptionsOf(internal::DECODE, GetParam()));
    for (uint64_t id = 11; id <= 13; ++id) orphans.push_back(Reserve(dead, id));
    for (Reserved& orphan : orphans) orphan.decode.reset();
  }
  for (const Reserved& orphan : orphans) {
    const auto failed = Prefill(p, orphan);
    EXPECT_TRUE(failed.has_value() && failed->has_failed());
  }
  EXPECT_TRUE(baton::testing::Eventually([&] { return Transfers(*p.runtime, "failed") == 3; }));
  for (uint64_t id = 21; id <= 22; ++id) {
    const Reserved reserved = Reserve(d, id);
    auto prefill = OpenPrefill(p.server->address());
    prefill->Send(MakePrefill(reserved.start, reserved.landing));
    internal::PrefillRequest cancel;
    cancel.mutable_cancel();
    prefill->Send(cancel);
    EXPECT_TRUE(prefill->Next().has_value());
  }
  // Too late is possible, failed is not.
  EXPECT_TRUE(baton::testing::Eventually([&] { return Transfers(*p.runtime, "ok") + Transfers(*p.runtime, "cancelled") == 5; }));
  EXPECT_EQ(Transfers(*p.runtime, "failed"), 3);
  EXPECT_TRUE(baton::testing::Eventually([&] { return p.service->num_open_calls() == 0 && d.service->num_open_calls() == 0; }));
  EXPECT_EQ(Transfers(*d.runtime, "failed"), 3);
  for (WorkerRuntime* runtime : {p.runtime.get(), d.runtime.get()}) {
    EXPECT_EQ(Metric(*runtime, "baton_kv_transfers_corrupt_total"), 0);  // Of another model, and broken off: no bit was wrong.
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WorkerReportTest, ::testing::Values(TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

// D09, the rest: two requests whose two choices outgrow the pool, and of no prompt anything was there before.
TEST(PreemptionReportTest, TwoPreemptionsAreTwoAndNoHit) {
  WorkerOptions options = OptionsOf(internal::DECODE, TransportKind::kGrpc);
  constexpr int kBlocks = 8;  // Two shared ones and one each at first; two and four each at the end.
  options.kv_memory_bytes = kBlocks * 16 * 256;
  TestDecodeWorker d(options);
  ASSERT_EQ(d.runtime->pool()->num_blocks(), kBlocks);
  for (uint64_t id = 1; id <= 2; ++id) {
    const auto stream = OpenDecode(d.server->address());
    internal::DecodeRequest start = MakeStart(*d.runtime, id, Prompt(static_cast<uint32_t>(id), 33), 60, /*local=*/true);
    start.mutable_start()->set_num_choices(2);
    stream->Send(start);
    int tokens = 0;
    while (const auto event = stream->Next()) tokens += event->tokens().tokens_size();
    EXPECT_EQ(tokens, 2 * 60);
  }
  EXPECT_TRUE(baton::testing::Eventually([&] { return Metric(*d.runtime, "baton_kv_blocks", "state=\"used\"") == 0; }));
  EXPECT_EQ(Metric(*d.runtime, "baton_preemptions_total"), 2);
  EXPECT_EQ(Metric(*d.runtime, "baton_prompt_tokens_cached_total"), 0);
}

// D03: the process answers, its engine thread does not come round.
TEST(StuckEngineTest, AWorkerWhoseEngineMakesNoStepTakesNoWorkUntilItDoes) {
  WorkerOptions options = OptionsOf(internal::DECODE, TransportKind::kGrpc);
  options.engine_stuck_after = absl::Milliseconds(500);
  TestDecodeWorker d(options);
  std::promise<void> go_on;
  d.runtime->engine()->Post([stuck = go_on.get_future().share()](EngineCore&) { stuck.wait_for(std::chrono::seconds(60)); });
  EXPECT_TRUE(baton::testing::Eventually([&] { return !d.runtime->Ready().ok(); }));
  EXPECT_THAT(d.runtime->Ready(), StatusIs(absl::StatusCode::kInternal, HasSubstr("the engine thread made no step for")));
  const internal::WorkerLoad load = d.runtime->Load(1);
  EXPECT_TRUE(load.broken());
  EXPECT_THAT(load.reason(), HasSubstr("made no step"));
  EXPECT_EQ(Metric(*d.runtime, "baton_ready"), 0);
  go_on.set_value();
  EXPECT_TRUE(baton::testing::Eventually([&] { return d.runtime->Ready().ok() && !d.runtime->Load(1).broken(); }));
}

}  // namespace
}  // namespace baton
