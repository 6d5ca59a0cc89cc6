// SPDX-License-Identifier: Apache-2.0
// baton.v1 over loopback, with workers that follow scripts.
#include <algorithm>
#include <future>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/thread.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// With workers that carry all their calls in one stream, and with those of a version that has a stream for each.
class GenerationServiceTest : public ServiceTest, public ::testing::WithParamInterface<bool> {
 protected:
  GenerationServiceTest() { multiplexes_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Streams, GenerationServiceTest, ::testing::Bool(),
                         [](const auto& multiplexes) { return multiplexes.param ? "OneForAllCalls" : "OneForEachCall"; });

TEST_P(GenerationServiceTest, DisaggregatedRunIsComplete) {
  StubWorker* prefill = AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello")});
  v1::GenerateRequest request = Text("abc");
  request.set_request_id("mine");
  request.mutable_sampling()->set_seed(7);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "hello");
  EXPECT_THAT(answer.ids, ElementsAreArray(Bytes("hello")));
  EXPECT_EQ(answer.finish_reason, "length");
  EXPECT_EQ(answer.last.request_id(), "mine");
  EXPECT_EQ(answer.last.usage().prompt_tokens(), 3);
  EXPECT_EQ(answer.last.usage().completion_tokens(), 5);
  const v1::Timeline& t = answer.last.timeline();
  EXPECT_EQ(t.prefill_worker(), "p-1");
  EXPECT_EQ(t.decode_worker(), "d-1");
  EXPECT_TRUE(t.disaggregated());
  EXPECT_EQ(t.transport(), "grpc");
  EXPECT_EQ(t.kv_bytes(), 4096);
  EXPECT_EQ(t.attempts(), 1);
  EXPECT_NEAR(t.queued_ms() + t.tokenise_ms() + t.landing_ms() + t.prefill_ms() + t.transfer_exposed_ms() + t.first_step_ms() +
                  t.decode_ms(),
              t.total_ms(), 1e-6);
  ASSERT_EQ(decode->starts().size(), 1u);
  const internal::DecodeStart start = decode->starts()[0];
  EXPECT_EQ(start.sampling().seed(), 7u);
  EXPECT_EQ(start.sampling().max_tokens(), 8);
  EXPECT_EQ(start.sampling().stop_token_ids(0), FakeTokenizer::kEnd);
  EXPECT_EQ(start.model_fingerprint(), "model-a");
  ASSERT_EQ(prefill->prefills().size(), 1u);
  EXPECT_EQ(prefill->prefills()[0].tokens_size(), 3);
  EXPECT_TRUE(decode->WaitForOpenCalls(0));
  EXPECT_TRUE(prefill->WaitForOpenCalls(0));
  EXPECT_TRUE(Idle());
}

TEST_P(GenerationServiceTest, StopTokenEndsWithoutItsText) {
  AddWorker("p-1", internal::PREFILL);
  AddWorker("d-1", internal::DECODE, {.tokens = {'h', 'i', FakeTokenizer::kEnd}, .finish = internal::STOP});
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.text, "hi");
  EXPECT_EQ(answer.finish_reason, "stop");
  EXPECT_EQ(answer.last.usage().completion_tokens(), 3);
}

TEST_P(GenerationServiceTest, StopStringEndsAndStopsDecode) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("xxSTOPyy and much more"), .stall_after_tokens = 8});
  v1::GenerateRequest request = Text("abc", 20);
  request.add_stop("STOP");
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.text, "xx");
  EXPECT_EQ(answer.finish_reason, "stop");
  EXPECT_EQ(answer.last.usage().completion_tokens(), 6);
  EXPECT_TRUE(decode->WaitForStops(1));
  EXPECT_TRUE(decode->WaitForOpenCalls(0));
}

TEST_P(GenerationServiceTest, BadInputNamesFieldValueAndBoundBeforeAnyWork) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("x")});
  auto expect = [&](const v1::GenerateRequest& request, const std::vector<std::string>& parts,
                    grpc::StatusCode code = grpc::INVALID_ARGUMENT) {
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), code) << answer.status.error_message();
    for (const std::string& part : parts) EXPECT_THAT(answer.status.error_message(), HasSubstr(part));
  };
  expect(Text(""), {"prompt", "empty"});
  expect(Text("\xff"), {"prompt", "UTF-8", "byte 0"});
  expect(Text(std::string(60, 'a'), 5), {"max_tokens 5", "60", "64"});
  expect(Text(std::string(64, 'a'), 1), {"prompt", "64"});
  expect(v1::GenerateRequest(), {"prompt", "missing"});
  const auto chat = [](const char* role, const char* content) {
    v1::GenerateRequest request;
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role(role);
    if (content != nullptr) message->set_content(content);
    return request;
  };
  expect(chat("robot", "x"), {"messages[0].role", "is not one of"});
  expect(chat("user", nullptr), {"messages[0].content", "missing"});
  auto with = [&](auto change) {
    v1::GenerateRequest request = Text("abc");
    change(request);
    return request;
  };
  expect(with([](auto& r) { r.set_model("other"); }), {"other"}, grpc::NOT_FOUND);
  expect(with([](auto& r) { r.mutable_sampling()->set_temperature(-0.1); }), {"temperature", "-0.1", "at least 0"});
  expect(with([](auto& r) { r.mutable_sampling()->set_temperature(std::nan("")); }), {"temperature", "nan"});
  expect(with([](auto& r) { r.mutable_sampling()->set_top_p(0); }), {"top_p", "(0, 1]"});
  expect(with([](auto& r) { r.mutable_sampling()->set_top_k(-2); }), {"top_k", "-2"});
  expect(with([](auto& r) { r.set_max_tokens(0); }), {"max_tokens", "0"});
  expect(with([](auto& r) { r.set_n(65); }), {"n 65", "64"});
  expect(with([](auto& r) { r.set_logprobs(21); }), {"logprobs 21", "20"});
  expect(with([](auto& r) { r.set_priority(std::numeric_limits<int32_t>::min()); }),
         {"priority -2147483648", "[-1000000, 1000000]"});
  expect(with([](auto& r) { r.set_priority(1000001); }), {"priority 1000001", "[-1000000, 1000000]"});
  expect(with([](auto& r) { r.add_stop_token_ids(300); }), {"stop_token_ids", "300"});
  expect(with([](auto& r) { r.mutable_token_ids()->add_ids(-1); }), {"prompt", "-1", "300"});
  expect(with([](auto& r) {
           for (int i = 0; i < 17; ++i) r.add_stop(std::to_string(i));
         }),
         {"stop", "16"});
  EXPECT_THAT(decode->starts(), IsEmpty());
}

TEST_P(GenerationServiceTest, NoWorkersIsUnavailableWithRetryAfter) {
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("no workers"));
  EXPECT_EQ(answer.retry_after, "1000");
}

// Changes come from many threads at once; whatever their order, the queue ends with the last view.
TEST_P(GenerationServiceTest, QueueEndsWithTheLastViewWhateverTheThreads) {
  RouterCore* core = router_->core();
  const auto identity = [](const std::string& id, internal::WorkerRole role) {
    internal::WorkerIdentity identity;
    identity.set_id(id);
    identity.set_incarnation(1);
    identity.set_role(role);
    identity.set_address("127.0.0.1:1");
    identity.set_model_fingerprint("m");
    identity.set_kv_layout("l");
    identity.set_vocab_size(300);
    identity.set_context_length(64);
    return identity;
  };
  internal::WorkerLoad load;
  load.set_credit_slots(1000);
  const MonotonicTime now = Clock::Real()->Now();
  const auto prefill = core->registry.Connect(identity("p", internal::PREFILL), now);
  ASSERT_TRUE(prefill.ok());
  core->registry.Report(*prefill, load, now);
  for (int round = 0; round < 100; ++round) {
    const bool leaves = round % 2 == 0;
    const auto decode = core->registry.Connect(identity("d", internal::DECODE), now);
    ASSERT_TRUE(decode.ok());
    if (leaves) core->registry.Report(*decode, load, now);
    {
      std::vector<Thread> threads;
      for (int i = 0; i < 3; ++i) threads.emplace_back("report", [&] { core->registry.Report(*prefill, load, now); });
      if (leaves) {
        core->registry.Disconnect(*decode);
      } else {
        core->registry.Report(*decode, load, now);
      }
      for (Thread& thread : threads) thread.Join();
    }
    std::optional<bool> granted;  // The answer to the asking call comes at once.
    const uint64_t ticket = core->dispatcher.Acquire({.num_tokens = 1}, [&](absl::StatusOr<Route> route) {
      granted = route.ok();
      if (!route.ok()) return;
      core->dispatcher.Release(route->decode, route->num_tokens, false);
      core->dispatcher.Release(route->prefill, route->num_tokens, false);
    });
    core->dispatcher.Forget(ticket);
    EXPECT_EQ(granted, !leaves) << round;
    core->registry.Disconnect(*decode);
  }
}

TEST_P(GenerationServiceTest, MismatchedPairIsNeverUsedAndSaysWhy) {
  AddWorker("p-1", internal::PREFILL, {}, "layout-b");
  AddWorker("d-1", internal::DECODE, {.tokens = Bytes("x")});
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("layout-a"));
  EXPECT_THAT(answer.status.error_message(), HasSubstr("layout-b"));
  grpc::ClientContext context;
  v1::GetClusterResponse cluster;
  ASSERT_TRUE(stub_->GetCluster(&context, {}, &cluster).ok());
  ASSERT_EQ(cluster.workers_size(), 2);
  EXPECT_FALSE(cluster.workers(0).ready());
  EXPECT_THAT(cluster.workers(0).reason(), HasSubstr("kv layout mismatch"));
  EXPECT_FALSE(cluster.router().ready());
}

TEST_P(GenerationServiceTest, RefusalGoesToTheOtherWorker) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* d1 = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .refuse = 1});
  StubWorker* d2 = AddWorker("d-2", internal::DECODE, {.tokens = Bytes("hello"), .refuse = 1});
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.text, "hello");
  EXPECT_EQ(answer.last.timeline().recoveries(), 0);
  EXPECT_EQ(d1->starts().size() + d2->starts().size(), 3u);
}

TEST_P(GenerationServiceTest, FailedPrefillIsRetriedThenDoneLocally) {
  AddWorker("p-1", internal::PREFILL, {.fail_prefill = 1});
  AddWorker("p-2", internal::PREFILL, {.fail_prefill = 1});
  AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello")});
  const Answer answer = Generate(Text("abc"));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "hello");
  EXPECT_EQ(answer.last.timeline().attempts(), 3);
  EXPECT_FALSE(answer.last.timeline().disaggregated());
}

TEST_P(GenerationServiceTest, DecodeDeathContinuesTheStreamElsewhere) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* d1 = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello world"), .die_after_tokens = 4});
  v1::GenerateRequest request = Text("abc", 11);
  std::string text;
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  StubWorker* d2 = nullptr;
  std::thread other;
  // The second worker comes only after the death: a new one is used as soon as it registers.
  while (reader->Read(&response)) {
    for (const auto& delta : response.deltas()) text += delta.text();
    if (text == "hell" && d2 == nullptr) d2 = AddWorker("d-2", internal::DECODE, {.tokens = Bytes("hello world")});
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "hello world");
  EXPECT_EQ(response.timeline().recoveries(), 1);
  EXPECT_EQ(response.timeline().decode_worker(), "d-2");
  ASSERT_NE(d2, nullptr);
  ASSERT_EQ(d2->starts().size(), 1u);
  EXPECT_EQ(d2->starts()[0].num_prompt_tokens(), 3);
  EXPECT_EQ(d2->starts()[0].tokens_size(), 7);
  EXPECT_EQ(d2->starts()[0].sampling().seed(), d1->starts()[0].sampling().seed());
}

TEST_P(GenerationServiceTest, KilledWorkerWithNobodyLeftIsUnavailableSoon) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .stall_after_tokens = 2});
  // Not before they have arrived: what a process that dies had sent may be lost with it.
  const Answer answer = Generate(Text("abc"), [&](const Answer& so_far) {
    if (so_far.text == "he") decode->Kill();
  });
  EXPECT_EQ(answer.status.error_code(), grpc::UNAVAILABLE) << answer.status.error_message();
  EXPECT_EQ(answer.text, "he");
  EXPECT_EQ(Generate(Text("abc")).status.error_code(), grpc::UNAVAILABLE);
}

TEST_P(GenerationServiceTest, TwoDeathsAreInternal) {
  AddWorker("p-1", internal::PREFILL);
  AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .die_after_tokens = 1});
  AddWorker("d-2", internal::DECODE, {.tokens = Bytes("hello"), .die_after_tokens = 1});
  AddWorker("d-3", internal::DECODE, {.tokens = Bytes("hello"), .die_after_tokens = 1});
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.status.error_code(), grpc::INTERNAL) << answer.status.error_message();
  EXPECT_EQ(answer.text, "he");
}

TEST_P(GenerationServiceTest, CancelStopsBothWorkersByMessage) {
  StubWorker* prefill = AddWorker("p-1", internal::PREFILL, {.stall_prefill = true});
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello")});
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Text("abc"));
  ASSERT_TRUE(prefill->WaitForCalls(1));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(prefill->WaitForCancels(1));
  EXPECT_TRUE(decode->WaitForStops(1));
  EXPECT_TRUE(prefill->WaitForOpenCalls(0));
  EXPECT_TRUE(decode->WaitForOpenCalls(0));
  EXPECT_TRUE(Idle());
  for (const auto& worker : router_->core()->registry.View()->workers) {
    EXPECT_TRUE(WaitUntil([&] { return router_->core()->dispatcher.open_calls(worker->ref) == 0; }));
  }
}

TEST_P(GenerationServiceTest, ManyCancelsAtAnyMomentLeaveNothing) {
  StubWorker* prefill = AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello world"), .stall_after_tokens = 6});
  for (int i = 0; i < 60; ++i) {
    grpc::ClientContext context;
    auto reader = stub_->Generate(&context, Text("abc", 11));
    v1::GenerateResponse response;
    // By characters, a token each: a message may have several.
    for (int left = i % 7; left > 0 && reader->Read(&response);) {
      for (const v1::ChoiceDelta& delta : response.deltas()) left -= static_cast<int>(delta.text().size());
    }
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  }
  EXPECT_TRUE(Idle());
  EXPECT_TRUE(decode->WaitForOpenCalls(0));
  EXPECT_TRUE(prefill->WaitForOpenCalls(0));
  decode->SetScript({.tokens = Bytes("fine")});
  EXPECT_EQ(Generate(Text("abc")).text, "fine");
}

TEST_P(GenerationServiceTest, FullQueueIsResourceExhausted) {
  RouterOptions options;
  options.core.admission.max_queue = 0;
  StartRouter(options);
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .stall_after_tokens = 1});
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 8; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), Text("abc")));
  }
  ASSERT_TRUE(decode->WaitForTokensSent(8));
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.status.error_code(), grpc::RESOURCE_EXHAUSTED) << answer.status.error_message();
  EXPECT_FALSE(answer.retry_after.empty());
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) reader->Finish();
}

TEST_P(GenerationServiceTest, GrantsDoNotWaitForPromptsToBePrepared) {
  RouterOptions options;
  options.core.preparation.num_threads = 1;
  StartRouter(options);
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .stall_after_tokens = 1});
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 9; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), Text("abc")));
    if (i == 8) break;
    ASSERT_TRUE(decode->WaitForTokensSent(i + 1));
  }
  ASSERT_TRUE(WaitUntil([&] { return router_->core()->dispatcher.num_waiting() == 1; }));
  std::promise<void> prepared;
  ASSERT_TRUE(router_->core()->preparation.Post(1, [done = prepared.get_future().share()] { done.wait(); }).ok());
  contexts[0]->TryCancel();
  EXPECT_TRUE(decode->WaitForTokensSent(9));
  prepared.set_value();
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) reader->Finish();
}

TEST_P(GenerationServiceTest, NeverDisaggregatedNeedsNoPrefillWorker) {
  RouterOptions options;
  options.core.disaggregate = Disaggregate::kNever;
  StartRouter(options);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello")});
  const Answer answer = Generate(Text("abc"));
  EXPECT_EQ(answer.text, "hello");
  EXPECT_EQ(answer.last.timeline().reason(), "never");
  EXPECT_TRUE(decode->starts().at(0).prefill_locally());
}

TEST_P(GenerationServiceTest, ChoicesAreSiblingsWithTheirOwnNumbers) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello")});
  v1::GenerateRequest request = Text("abc");
  request.set_n(3);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.last.usage().completion_tokens(), 15);
  EXPECT_EQ(answer.last.usage().prompt_tokens(), 3);
  std::set<int> numbers;
  for (const auto& start : decode->starts()) numbers.insert(start.first_choice());
  EXPECT_EQ(numbers, (std::set<int>{0, 1, 2}));
}

TEST_P(GenerationServiceTest, ChoicesShareOneLanding) {
  for (const int length : {17, 40, 49}) {  // Of whole units and a last token; with some behind them.
    SCOPED_TRACE(length);
    const std::string p = absl::StrCat("p-", length), d = absl::StrCat("d-", length);
    StubWorker* prefill = AddWorker(p, internal::PREFILL);
    StubWorker* decode = AddWorker(d, internal::DECODE, {.tokens = Bytes("hello"), .caches = true});
    StubWorker* other = AddWorker(d + "x", internal::DECODE, {.tokens = Bytes("hello"), .caches = true});
    v1::GenerateRequest request = Text(std::string(static_cast<size_t>(length), 'a'));
    request.set_n(4);
    request.set_max_tokens(5);
    const Answer answer = Generate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.last.usage().completion_tokens(), 20);
    EXPECT_EQ(prefill->prefills().size(), 1u);
    EXPECT_EQ(std::max(decode->starts().size(), other->starts().size()), 4u);
    // The request's phases and how it was served are the first landing's.
    EXPECT_EQ(answer.last.timeline().prefill_worker(), p);
    EXPECT_TRUE(answer.last.timeline().disaggregated());
    const v1::Timeline& t = answer.last.timeline();
    EXPECT_NEAR(t.queued_ms() + t.tokenise_ms() + t.landing_ms() + t.prefill_ms() + t.transfer_exposed_ms() + t.first_step_ms() + t.decode_ms(),
                t.total_ms(), 0.01);
    workers_.clear();
    WaitUntil([&] { return router_->core()->registry.View()->workers.empty(); });
  }
}

// What one choice does is its own: here the worker dies under all of them, and each goes on elsewhere from where it was.
TEST_P(GenerationServiceTest, ChoicesThatShareALandingRecoverByThemselves) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* dies = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .stall_after_tokens = 2, .caches = true});
  v1::GenerateRequest request = Text(std::string(40, 'a'));
  request.set_n(3);
  std::thread kills([&] {
    EXPECT_TRUE(dies->WaitForTokensSent(6));
    AddWorker("d-2", internal::DECODE, {.tokens = Bytes("hello"), .caches = true});
    dies->Kill();
  });
  const Answer answer = Generate(request);
  kills.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.last.usage().completion_tokens(), 15);
  EXPECT_EQ(answer.text.size(), 15u);
}

TEST_P(GenerationServiceTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  AddWorker("p-1", internal::PREFILL);
  StubWorker* decode = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .stall_after_tokens = 2});
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Text("abc"));
  ASSERT_TRUE(decode->WaitForTokensSent(2));
  router_->StartDraining();
  EXPECT_EQ(Generate(Text("abc")).status.error_code(), grpc::UNAVAILABLE);
  EXPECT_FALSE(router_->Drain(absl::Milliseconds(10)));  // It stalls: cut after the grace.
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
}

}  // namespace
}  // namespace baton::testing
