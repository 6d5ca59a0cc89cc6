// SPDX-License-Identifier: Apache-2.0
// The next turn of a chat on a prefill worker that has nothing of the turn before: what the decode worker made while it generated is
// sent there instead of being computed again, or it is computed when anything goes wrong. What the router does is the test's.
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/token_hash.h"
#include "gtest/gtest.h"
#include "tests/integration/worker_pair.h"
#include "tests/support/faulty_kv_link.h"
#include "tests/support/tiny_model.h"
#include "tests/support/transport_pair.h"

namespace baton {
namespace {

using namespace ::baton::testing;

constexpr int kFirst = 150, kAnswer = 40, kNew = 21;
using Ids = std::optional<std::vector<int32_t>>;

class HistoryPullTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    TinyModelOptions model;
    model.num_layers = 3;
    path_ = WriteTempFile("history_pull_test.gguf", TinyModel(model).Build());
  }
  WorkerOptions Options(internal::WorkerRole role) const {
    WorkerOptions options;
    options.role = role;
    options.id = role == internal::PREFILL ? "p-1" : "d-1";
    options.model_path = path_;
    options.backend.num_threads = 1;
    options.kv_memory_bytes = 4 << 20;
    options.engine.max_step_rows = 64;
    options.engine.panel_rows = 16;
    options.transfer_timeout = absl::Seconds(5);
    options.transports = {GetParam()};
    options.pull_history = PullHistory::kAlways;
    return options;
  }
  static Ids Local(TestDecodeWorker& d, uint64_t id, const std::vector<int32_t>& prompt, int max_tokens) {
    auto decode = OpenDecode(d.server->address());
    decode->Send(MakeStart(*d.runtime, id, prompt, max_tokens, /*local=*/true));
    return ReadTokens(decode.get());
  }
  // The second prompt: the first one, what `d` answered to it, and something new. `d` has all but the new in its cache.
  static std::vector<int32_t> SecondTurn(TestDecodeWorker& d) {
    std::mt19937 rng(17);
    std::vector<int32_t> prompt(kFirst);
    for (int32_t& token : prompt) token = static_cast<int32_t>(3 + rng() % 256);
    const Ids answer = Local(d, 1, prompt, kAnswer);
    EXPECT_TRUE(answer.has_value());
    if (answer.has_value()) prompt.insert(prompt.end(), answer->begin(), answer->end());
    for (int i = 0; i < kNew; ++i) prompt.push_back(static_cast<int32_t>(3 + rng() % 256));
    return prompt;
  }
  static bool AtBaseline(WorkerRuntime& runtime) {
    return Eventually([&] {
      const EngineStats stats = runtime.engine()->stats();
      return stats.blocks.free + stats.blocks.cached == stats.blocks.total && stats.running + stats.waiting + stats.landing == 0;
    });
  }
  static double Histories(WorkerRuntime& runtime, const char* transport, const char* result) {
    return Metric(runtime, "baton_kv_histories_total", absl::StrCat("result=\"", result, "\",transport=\"", transport, "\""));
  }

  static void ClearCache(TestPrefillWorker& p) {
    std::promise<void> cleared;
    ASSERT_TRUE(p.runtime->engine()->Post([&](EngineCore& core) {
      core.ClearPrefixCache();
      cleared.set_value();
    }));
    cleared.get_future().wait();
  }

  // A call that has asked decode for the history of `prompt`, which nobody has handed on yet.
  struct Asked {
    std::unique_ptr<DecodeStream> decode;
    std::unique_ptr<PrefillStream> prefill;
    internal::DecodeRequest start;
    internal::WantsHistory wants;
  };
  static std::optional<Asked> Ask(TestPrefillWorker& p, TestDecodeWorker& d, uint64_t id, const std::vector<int32_t>& prompt,
                                  int max_tokens = 12) {
    Asked asked{.decode = OpenDecode(d.server->address()), .prefill = OpenPrefill(p.server->address())};
    asked.start = MakeStart(*d.runtime, id, prompt, max_tokens, /*local=*/false);
    asked.decode->Send(asked.start);
    const auto landing = asked.decode->Next();
    if (!landing.has_value() || !landing->has_landing()) return std::nullopt;
    asked.prefill->Send(MakePrefill(asked.start, landing->landing(), /*with_history=*/true));
    const auto event = asked.prefill->Next();
    if (!event.has_value() || !event->has_history()) return std::nullopt;
    asked.wants = event->history();
    return asked;
  }
  // The call ends well, with so much computed and the right answer.
  static void ExpectDone(Asked& asked, int computed, int history, const Ids& want) {
    const auto done = asked.prefill->Next();
    ASSERT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "no answer");
    EXPECT_EQ(done->done().computed_tokens(), computed);
    EXPECT_EQ(done->done().history_tokens(), history);
    EXPECT_EQ(ReadTokens(asked.decode.get()), want);
  }

  std::string path_;
};

// What decode has cached of the second prompt: whole blocks, and the answer's last token was never computed.
int CachedBy(int block_size) { return (kFirst + kAnswer - 1) / block_size * block_size; }
constexpr int kToPrefill = kFirst + kAnswer + kNew - 1;

TEST_P(HistoryPullTest, OnlyTheNewMessageIsComputedAndSent) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE)), alone(Options(internal::DECODE));
  const std::vector<int32_t> prompt = SecondTurn(d);
  const Ids want = Local(alone, 1, prompt, 12);
  auto asked = Ask(p, d, 2, prompt);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->wants.first_token(), 0);
  EXPECT_EQ(asked->wants.num_tokens(), CachedBy(16));
  asked->decode->Send(MakeSendHistory(1, asked->wants));
  const auto done = asked->prefill->Next();
  ASSERT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "no answer");
  EXPECT_LE(done->done().computed_tokens(), kNew + 16);
  EXPECT_EQ(done->done().computed_tokens(), kToPrefill - CachedBy(16));
  EXPECT_EQ(done->done().history_tokens(), CachedBy(16));
  const int64_t token_bytes = static_cast<int64_t>(d.runtime->pool()->layout().token_bytes());
  EXPECT_EQ(done->done().kv_bytes(), (kToPrefill - CachedBy(16)) * token_bytes);
  EXPECT_EQ(p.runtime->engine()->stats().prompt_tokens_computed, static_cast<uint64_t>(kToPrefill - CachedBy(16)));
  EXPECT_EQ(ReadTokens(asked->decode.get()), want);
  EXPECT_TRUE(AtBaseline(*p.runtime));
  EXPECT_TRUE(AtBaseline(*d.runtime));
  for (WorkerRuntime* runtime : {p.runtime.get(), d.runtime.get()}) {
    EXPECT_EQ(Histories(*runtime, TransportName(GetParam()), "ok"), 1) << runtime->id();
    EXPECT_EQ(Metric(*runtime, "baton_kv_history_bytes_total"), static_cast<double>(CachedBy(16) * token_bytes))
        << runtime->id();
  }
}

// Only what the prefill worker's own cache lacks.
TEST_P(HistoryPullTest, WhatIsThereIsNotSentAgain) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE)), alone(Options(internal::DECODE));
  std::vector<int32_t> prompt = SecondTurn(d);
  auto first = Ask(p, d, 2, prompt, kAnswer);
  ASSERT_TRUE(first.has_value());
  first->decode->Send(MakeSendHistory(1, first->wants));
  const Ids answer = Local(alone, 1, prompt, kAnswer);
  ExpectDone(*first, kToPrefill - CachedBy(16), CachedBy(16), answer);
  ASSERT_TRUE(answer.has_value());
  prompt.insert(prompt.end(), answer->begin(), answer->end());
  prompt.insert(prompt.end(), {9, 8, 7});
  auto second = Ask(p, d, 3, prompt);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->wants.first_token(), kToPrefill / 16 * 16);
  EXPECT_EQ(second->wants.num_tokens(), (kToPrefill + kAnswer) / 16 * 16);
  second->decode->Send(MakeSendHistory(1, second->wants));
  const auto done = second->prefill->Next();
  ASSERT_TRUE(done.has_value() && done->has_done());
  EXPECT_EQ(done->done().history_tokens(), second->wants.num_tokens() - second->wants.first_token());
  EXPECT_EQ(ReadTokens(second->decode.get()), Local(alone, 2, prompt, 12));
}

TEST_P(HistoryPullTest, LayoutsMayDiffer) {
  for (const auto& [prefill_block, decode_block] : {std::pair(16, 32), std::pair(64, 16), std::pair(48, 32)}) {
    WorkerOptions prefill = Options(internal::PREFILL), decode = Options(internal::DECODE);
    prefill.block_size = prefill_block;
    decode.block_size = decode_block;
    TestPrefillWorker p(prefill);
    TestDecodeWorker d(decode), alone(decode);
    const std::vector<int32_t> prompt = SecondTurn(d);
    auto asked = Ask(p, d, 2, prompt);
    ASSERT_TRUE(asked.has_value()) << prefill_block << " from " << decode_block;
    asked->decode->Send(MakeSendHistory(1, asked->wants));
    const int history = CachedBy(decode_block) / prefill_block * prefill_block;
    ExpectDone(*asked, kToPrefill - history, history, Local(alone, 1, prompt, 12));
  }
  // Types: f32 is rounded to f16, which this model's ids do not notice. What loses more is history_precision_test's.
  WorkerOptions decode = Options(internal::DECODE);
  decode.kv_dtype = KvDtype::kF32;
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(decode), alone(decode);
  const std::vector<int32_t> prompt = SecondTurn(d);
  auto asked = Ask(p, d, 2, prompt);
  ASSERT_TRUE(asked.has_value());
  asked->decode->Send(MakeSendHistory(1, asked->wants));
  ExpectDone(*asked, kToPrefill - CachedBy(16), CachedBy(16), Local(alone, 1, prompt, 12));
}

TEST_P(HistoryPullTest, WhatDecodeDoesNotSendIsComputed) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE)), alone(Options(internal::DECODE));
  const std::vector<int32_t> prompt = SecondTurn(d);
  auto asked = Ask(p, d, 2, prompt);
  ASSERT_TRUE(asked.has_value());
  // Of another attempt, and more than it has: decode says no, and the router hands that on.
  for (const auto& [attempt, num_tokens] : {std::pair(2, asked->wants.num_tokens()), std::pair(1, asked->wants.num_tokens() + 16)}) {
    internal::WantsHistory wants = asked->wants;
    wants.set_num_tokens(num_tokens);
    asked->decode->Send(MakeSendHistory(attempt, wants));
    const auto failed = asked->decode->Next();
    ASSERT_TRUE(failed.has_value() && failed->has_history_failed()) << (failed ? failed->DebugString() : "nothing");
    EXPECT_EQ(failed->history_failed().attempt(), attempt);
  }
  internal::PrefillRequest request;
  request.mutable_history_failed()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  asked->prefill->Send(request);
  ExpectDone(*asked, kToPrefill, 0, Local(alone, 1, prompt, 12));
  EXPECT_EQ(Histories(*p.runtime, "none", "failed"), 1);
  // Its decode worker is not asked again at once.
  ClearCache(p);
  const std::vector<int32_t> other(prompt.begin(), prompt.begin() + kFirst + kAnswer);
  auto decode = OpenDecode(d.server->address());
  const auto start = MakeStart(*d.runtime, 3, other, 12, /*local=*/false);
  decode->Send(start);
  const auto landing = decode->Next();
  ASSERT_TRUE(landing.has_value() && landing->has_landing());
  auto prefill = OpenPrefill(p.server->address());
  prefill->Send(MakePrefill(start, landing->landing(), /*with_history=*/true));
  const auto done = prefill->Next();
  EXPECT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "nothing");
  EXPECT_TRUE(AtBaseline(*p.runtime));
  EXPECT_TRUE(AtBaseline(*d.runtime));
}

TEST_P(HistoryPullTest, WhatNeverComesIsComputed) {
  WorkerOptions options = Options(internal::PREFILL);
  options.transfer_timeout = absl::Milliseconds(300);
  TestPrefillWorker p(options);
  TestDecodeWorker d(Options(internal::DECODE)), alone(Options(internal::DECODE));
  const std::vector<int32_t> prompt = SecondTurn(d);
  auto asked = Ask(p, d, 2, prompt);
  ASSERT_TRUE(asked.has_value());
  const auto done = asked->prefill->Next();
  ASSERT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "no answer");
  EXPECT_EQ(done->done().computed_tokens(), kToPrefill);
  EXPECT_EQ(done->done().history_tokens(), 0);
  asked->decode->Send(MakeSendHistory(1, asked->wants));  // Too late.
  EXPECT_EQ(ReadTokens(asked->decode.get()), Local(alone, 1, prompt, 12));
  EXPECT_TRUE(AtBaseline(*p.runtime));
  EXPECT_TRUE(AtBaseline(*d.runtime));
}

TEST_P(HistoryPullTest, ACancelAtAnyMomentFreesEverything) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  const std::vector<int32_t> prompt = SecondTurn(d);
  for (int moment = 0; moment < 12; ++moment) {
    auto asked = Ask(p, d, 10 + static_cast<uint64_t>(moment), prompt);
    ASSERT_TRUE(asked.has_value()) << moment;
    if (moment % 3 > 0) asked->decode->Send(MakeSendHistory(1, asked->wants));
    internal::PrefillRequest cancel;
    cancel.mutable_cancel();
    if (moment % 2 == 0) asked->prefill->Send(cancel);
    internal::DecodeRequest stop;
    stop.mutable_stop();
    asked->decode->Send(stop);
    if (moment % 2 == 1) asked->prefill->stream()->Cancel();
    asked.reset();
    // The next one is to find nothing here.
    EXPECT_TRUE(Eventually([&] { return p.service->num_open_calls() == 0 && d.service->num_open_calls() == 0; }));
    EXPECT_TRUE(AtBaseline(*p.runtime)) << moment;
    EXPECT_TRUE(AtBaseline(*d.runtime)) << moment;
    ClearCache(p);
  }
}

TEST_P(HistoryPullTest, ADecodeWorkerThatDiesEndsTheCall) {
  TestPrefillWorker p(Options(internal::PREFILL));
  for (const bool sending : {false, true}) {
    auto d = std::make_unique<TestDecodeWorker>(Options(internal::DECODE));
    const std::vector<int32_t> prompt = SecondTurn(*d);
    auto asked = Ask(p, *d, 2, prompt);
    ASSERT_TRUE(asked.has_value());
    if (sending) asked->decode->Send(MakeSendHistory(1, asked->wants));
    asked->decode.reset();
    d.reset();
    const auto end = asked->prefill->Next();
    ASSERT_TRUE(end.has_value());
    // It may have sent all before it died, and prefill all that it computed.
    EXPECT_TRUE(end->has_failed() || (sending && end->has_done())) << end->DebugString();
    EXPECT_TRUE(AtBaseline(*p.runtime));
    ClearCache(p);
  }
}

// The test sends what decode should, and something happens to it on the way: it is never used.
TEST_P(HistoryPullTest, WhatDoesNotVerifyIsComputed) {
  const struct {
    const char* what;
    LinkFaults faults;
  } cases[] = {
      {"a flipped bit", {.flip_frame = 2, .flip_bit = 4711}},
      {"a frame is missing", {.drop_frame = 1}},
      {"a cut", {.cut_after_bytes = 3000}},
      {"a stall", {.stall_after_bytes = 3000, .stall_timeout = absl::Milliseconds(50)}},
      {"other tokens", {.change_manifest = [](Manifest* m) { m->token_hash ^= 1; }}},
      {"fewer tokens", {.change_manifest = [](Manifest* m) { m->num_tokens -= 16; }}},
      {"another model", {.change_manifest = [](Manifest* m) { m->model_fingerprint = "other"; }}},
      // All is well with it, but that it is not what it is said to be: FilledPool's contents, under the right token hash, come
      // from somebody else.
      {"another sender", {}},
  };
  TestDecodeWorker d(Options(internal::DECODE)), alone(Options(internal::DECODE));
  const std::vector<int32_t> prompt = SecondTurn(d);
  const Ids want = Local(alone, 1, prompt, 12);
  uint64_t id = 1;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    TestPrefillWorker p(Options(internal::PREFILL));
    auto asked = Ask(p, d, ++id, prompt);
    ASSERT_TRUE(asked.has_value());
    const auto pool = FilledPool(d.runtime->pool()->layout(), 32, 3);
    SenderOptions sender_options{.pool = pool.get(), .self = {"d-1", d.runtime->incarnation()}};
    if (std::string(c.what) == "another sender") sender_options.self = {"d-2", d.runtime->incarnation() + 1};
    sender_options.model = d.runtime->compatibility().model_fingerprint;
    sender_options.max_frame_bytes = 1;
    sender_options.decorate = [&c](std::unique_ptr<KvLink> link) { return std::make_unique<FaultyKvLink>(std::move(link), c.faults); };
    std::optional<TransportOffer> offer;
    for (const internal::KvEndpoint& endpoint : asked->wants.kv_endpoints()) {
      offer = TransportOffer{*ParseTransportKind(endpoint.transport()), endpoint.host(), endpoint.address()};
    }
    ASSERT_TRUE(offer.has_value());
    const auto sender = MakeSender(*offer, sender_options);
    SendJob job;
    job.transfer = {asked->start.start().transfer().router_incarnation(), asked->start.start().transfer().stream()};
    job.attempt = 1;
    job.peer_incarnation = p.runtime->incarnation();
    job.num_tokens = asked->wants.num_tokens();
    const auto transfer = sender->Begin(std::move(job));
    std::vector<BlockId> blocks(static_cast<size_t>(asked->wants.num_tokens() / 16));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<BlockId>(i);
    sender->SetBlocks(transfer, blocks);
    sender->Push(transfer, 0, 3, 0, asked->wants.num_tokens());
    Manifest manifest;
    manifest.model_fingerprint = d.runtime->compatibility().model_fingerprint;
    manifest.num_tokens = asked->wants.num_tokens();
    manifest.token_hash = HashTokens({prompt.data(), static_cast<size_t>(asked->wants.num_tokens())}).low;
    sender->Finish(transfer, manifest);
    ExpectDone(*asked, kToPrefill, 0, want);
    sender->Stop();
    EXPECT_TRUE(AtBaseline(*p.runtime));
    EXPECT_EQ(Histories(*p.runtime, TransportName(GetParam()), "ok"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HistoryPullTest,
                         ::testing::Values(TransportKind::kInproc, TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace baton
