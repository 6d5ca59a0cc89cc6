// SPDX-License-Identifier: Apache-2.0
// The handoff between real services over loopback, driven message by message: what the router does is the test's.
#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "baton/internal/kv.grpc.pb.h"
#include "common/rpc/channel.h"
#include "gtest/gtest.h"
#include "tests/integration/worker_pair.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using namespace ::baton::testing;
using ::testing::HasSubstr;

class HandoffTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    TinyModelOptions model;
    model.num_layers = 3;
    path_ = WriteTempFile("handoff_test.gguf", TinyModel(model).Build());
  }

  WorkerOptions Options(internal::WorkerRole role, int64_t kv_bytes = 4 << 20) const {
    WorkerOptions options;
    options.role = role;
    options.model_path = path_;
    options.backend.num_threads = 1;
    options.kv_memory_bytes = kv_bytes;
    options.engine.max_step_rows = 64;
    options.engine.panel_rows = 16;
    options.transfer_timeout = absl::Seconds(5);
    options.transports = {GetParam()};
    return options;
  }

  static std::vector<int32_t> Prompt(uint32_t seed, int num_tokens) {
    std::mt19937 rng(seed);
    std::vector<int32_t> tokens(num_tokens);
    for (int32_t& token : tokens) token = static_cast<int32_t>(3 + rng() % 256);
    return tokens;
  }

  // One request through a landing; the tokens.
  static std::optional<std::vector<int32_t>> Disaggregated(TestPrefillWorker& p, TestDecodeWorker& d, uint64_t id,
                                                           const std::vector<int32_t>& prompt, int max_tokens) {
    auto decode = OpenDecode(d.server->address());
    const auto start = MakeStart(*d.runtime, id, prompt, max_tokens, /*local=*/false);
    decode->Send(start);
    const auto landing = decode->Next();
    if (!landing.has_value()) return std::nullopt;
    if (landing->has_landing()) {
      auto prefill = OpenPrefill(p.server->address());
      prefill->Send(MakePrefill(start, landing->landing()));
      const auto done = prefill->Next();
      EXPECT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "no answer");
    }
    return ReadTokens(decode.get());
  }

  static std::optional<std::vector<int32_t>> Local(TestDecodeWorker& d, uint64_t id, const std::vector<int32_t>& prompt,
                                                   int max_tokens) {
    auto decode = OpenDecode(d.server->address());
    decode->Send(MakeStart(*d.runtime, id, prompt, max_tokens, /*local=*/true));
    return ReadTokens(decode.get());
  }

  static bool AtBaseline(const WorkerRuntime& runtime) {
    return Eventually([&] {
      const EngineStats stats = const_cast<WorkerRuntime&>(runtime).engine()->stats();
      return stats.blocks.free + stats.blocks.cached == stats.blocks.total && stats.running == 0 && stats.waiting == 0 &&
             stats.landing == 0;
    });
  }

  std::string path_;
};

TEST_P(HandoffTest, IdsEqualLocalPrefillForEveryLength) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  TestDecodeWorker alone(Options(internal::DECODE));
  uint64_t id = 0;
  for (const int length : {1, 2, 15, 16, 17, 18, 32, 33, 64, 65, 129, 200}) {
    const std::vector<int32_t> prompt = Prompt(length, length);
    const auto want = Local(alone, ++id, prompt, 12);
    ASSERT_TRUE(want.has_value());
    EXPECT_EQ(Disaggregated(p, d, ++id, prompt, 12), want) << length << " tokens";
    EXPECT_EQ(Disaggregated(p, d, ++id, prompt, 12), want) << length << " tokens, again with a prefix hit";
  }
  EXPECT_TRUE(AtBaseline(*p.runtime));
  EXPECT_TRUE(AtBaseline(*d.runtime));
}

TEST_P(HandoffTest, TheTransferHasExactlyTheTokensBytes) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  auto decode = OpenDecode(d.server->address());
  const auto start = MakeStart(*d.runtime, 1, Prompt(1, 43), 2, false);
  decode->Send(start);
  const auto landing = decode->Next();
  ASSERT_TRUE(landing.has_value() && landing->has_landing());
  auto prefill = OpenPrefill(p.server->address());
  prefill->Send(MakePrefill(start, landing->landing()));
  const auto done = prefill->Next();
  ASSERT_TRUE(done.has_value() && done->has_done());
  const auto landed = decode->Next();
  ASSERT_TRUE(landed.has_value() && landed->has_landed());
  const int64_t bytes = 42 * static_cast<int64_t>(d.runtime->pool()->layout().token_bytes());
  EXPECT_EQ(landed->landed().kv_bytes(), bytes);
  EXPECT_EQ(done->done().kv_bytes(), bytes);
  EXPECT_EQ(landed->landed().transport(), TransportName(GetParam()));
  EXPECT_EQ(done->done().transport(), TransportName(GetParam()));
}

TEST_P(HandoffTest, PrefixHitsOfEveryLengthChangeNothing) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  TestDecodeWorker alone(Options(internal::DECODE));
  constexpr int kBlock = 16, kLength = 70;
  uint64_t id = 0;
  for (const int hit : {0, 1, kBlock - 1, kBlock, kBlock + 1, kLength - 1, kLength}) {
    const std::vector<int32_t> first = Prompt(100 + hit, kLength);
    std::vector<int32_t> prompt = Prompt(200 + hit, kLength);
    std::copy_n(first.begin(), hit, prompt.begin());
    ASSERT_TRUE(Disaggregated(p, d, ++id, first, 4).has_value());
    const auto want = Local(alone, ++id, prompt, 12);
    ASSERT_TRUE(want.has_value());
    EXPECT_EQ(Disaggregated(p, d, ++id, prompt, 12), want) << hit << " tokens hit";
  }
}

TEST_P(HandoffTest, BlockSizesMayDiffer) {
  for (const auto& [prefill_block, decode_block] : {std::pair(16, 32), std::pair(64, 16), std::pair(48, 32)}) {
    WorkerOptions prefill = Options(internal::PREFILL), decode = Options(internal::DECODE);
    prefill.block_size = prefill_block;
    decode.block_size = decode_block;
    TestPrefillWorker p(prefill);
    TestDecodeWorker d(decode), alone(decode);
    uint64_t id = 0;
    for (const int length : {2, 16, 33, 100, 200}) {
      const std::vector<int32_t> prompt = Prompt(length, length);
      const auto want = Local(alone, ++id, prompt, 12);
      ASSERT_TRUE(want.has_value());
      EXPECT_EQ(Disaggregated(p, d, ++id, prompt, 12), want) << length << " tokens, " << prefill_block << " to " << decode_block;
      EXPECT_EQ(Disaggregated(p, d, ++id, prompt, 12), want) << length << " tokens again, " << prefill_block << " to " << decode_block;
    }
  }
}

// Types that hold all that the writer's have: the same as computing there with the writer's rounding. f32 at decode keeps what
// prefill rounded to f16; a decode worker that prefills itself keeps more, so the first ids may differ only where two
// candidates are nearly equal. This model's are not. Integers of f16 values are nearly those of the values themselves.
TEST_P(HandoffTest, TypesMayDiffer) {
  for (const auto& [from, to] : {std::pair(KvDtype::kF16, KvDtype::kF32), std::pair(KvDtype::kF32, KvDtype::kF16),
                                 std::pair(KvDtype::kF16, KvDtype::kInt8), std::pair(KvDtype::kInt8, KvDtype::kInt8)}) {
    WorkerOptions prefill = Options(internal::PREFILL), decode = Options(internal::DECODE);
    prefill.kv_dtype = from;
    decode.kv_dtype = to;
    TestPrefillWorker p(prefill);
    TestDecodeWorker d(decode), alone(decode);
    const std::vector<int32_t> prompt = Prompt(5, 90);
    const auto want = Local(alone, 1, prompt, 12);
    ASSERT_TRUE(want.has_value());
    EXPECT_EQ(Disaggregated(p, d, 2, prompt, 12), want) << KvDtypeName(from) << " to " << KvDtypeName(to);
  }
}

// The bytes that came are those of eight bits, but over shared memory, where the writer fills the pool itself.
TEST_P(HandoffTest, TheWireMayHaveEightBits) {
  WorkerOptions options = Options(internal::DECODE);
  options.int8_wire = true;
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(options);
  KvLayout wire = d.runtime->pool()->layout();
  if (!TransportOf(GetParam()).one_sided) wire.dtype = KvDtype::kInt8;
  for (const int length : {17, 90, 128}) {
    auto decode = OpenDecode(d.server->address());
    const auto start = MakeStart(*d.runtime, static_cast<uint64_t>(length), Prompt(static_cast<uint32_t>(length), length), 12, false);
    decode->Send(start);
    const auto landing = decode->Next();
    ASSERT_TRUE(landing.has_value() && landing->has_landing());
    auto prefill = OpenPrefill(p.server->address());
    prefill->Send(MakePrefill(start, landing->landing()));
    const auto landed = decode->Next();
    ASSERT_TRUE(landed.has_value() && landed->has_landed()) << (landed ? landed->DebugString() : "nothing");
    EXPECT_EQ(landed->landed().kv_bytes(), (length - 1) * static_cast<int64_t>(wire.token_bytes()));
    const auto ids = ReadTokens(decode.get());
    EXPECT_EQ(ids.has_value() ? ids->size() : 0, 12u);
  }
}

TEST_P(HandoffTest, StopAtEveryMomentFreesEverything) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  for (int moment = 0; moment < 24; ++moment) {
    auto decode = OpenDecode(d.server->address());
    const auto start = MakeStart(*d.runtime, 100 + moment, Prompt(moment, 150 + moment), 40, false);
    decode->Send(start);
    const auto landing = decode->Next();
    ASSERT_TRUE(landing.has_value() && landing->has_landing());
    auto prefill = OpenPrefill(p.server->address());
    prefill->Send(MakePrefill(start, landing->landing()));
    if (moment % 3 == 1) {
      ASSERT_TRUE(prefill->Next().has_value());
    }
    if (moment % 3 == 2) {
      for (int i = 0; i < moment; ++i) ASSERT_TRUE(decode->Next().has_value());
    }
    if (moment % 2 == 0) {
      internal::DecodeRequest stop;
      stop.mutable_stop();
      decode->Send(stop);
      internal::PrefillRequest cancel;
      cancel.mutable_cancel();
      prefill->Send(cancel);
    } else {
      decode->stream()->Cancel();
      prefill->stream()->Cancel();
    }
  }
  EXPECT_TRUE(AtBaseline(*p.runtime));
  EXPECT_TRUE(AtBaseline(*d.runtime));
  EXPECT_TRUE(Eventually([&] { return p.service->num_open_calls() == 0 && d.service->num_open_calls() == 0; }));
  const auto want = Local(d, 1, Prompt(7, 100), 8);
  EXPECT_EQ(Disaggregated(p, d, 2, Prompt(7, 100), 8), want);
}

TEST_P(HandoffTest, ANewAttemptFencesTheOldOne) {
  TestPrefillWorker p1(Options(internal::PREFILL));
  TestPrefillWorker p2(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  const std::vector<int32_t> prompt = Prompt(3, 180);
  auto decode = OpenDecode(d.server->address());
  const auto start = MakeStart(*d.runtime, 1, prompt, 10, false);
  decode->Send(start);
  const auto first = decode->Next();
  ASSERT_TRUE(first.has_value() && first->has_landing());
  internal::DecodeRequest attempt;
  attempt.mutable_attempt()->set_attempt(2);
  decode->Send(attempt);
  const auto second = decode->Next();
  ASSERT_TRUE(second.has_value() && second->has_landing());
  EXPECT_EQ(second->landing().attempt(), 2);
  // The old attempt's writer comes late; what it sends is dropped.
  auto late = OpenPrefill(p1.server->address());
  late->Send(MakePrefill(start, first->landing()));
  ASSERT_TRUE(late->Next().has_value());
  auto prefill = OpenPrefill(p2.server->address());
  prefill->Send(MakePrefill(start, second->landing()));
  const auto landed = decode->Next();
  ASSERT_TRUE(landed.has_value() && landed->has_landed()) << (landed ? landed->DebugString() : "nothing");
  EXPECT_EQ(landed->landed().attempt(), 2);
  // And an attempt after Landed is answered as landed.
  attempt.mutable_attempt()->set_attempt(3);
  decode->Send(attempt);
  const auto ids = ReadTokens(decode.get());
  EXPECT_EQ(ids, Local(d, 2, prompt, 10));
}

TEST_P(HandoffTest, AWriterThatNeverComesTimesOut) {
  WorkerOptions options = Options(internal::DECODE);
  options.transfer_timeout = absl::Milliseconds(200);
  TestDecodeWorker d(options);
  d.service->SetLandingBackstop(absl::Milliseconds(300));
  auto decode = OpenDecode(d.server->address());
  decode->Send(MakeStart(*d.runtime, 1, Prompt(1, 100), 4, false));
  const auto landing = decode->Next();
  ASSERT_TRUE(landing.has_value() && landing->has_landing());
  const auto refused = decode->Next();
  ASSERT_TRUE(refused.has_value() && refused->has_refused());
  EXPECT_EQ(refused->refused().code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(refused->refused().message(), HasSubstr("transfer timeout"));
  EXPECT_FALSE(decode->Next().has_value());
  EXPECT_TRUE(AtBaseline(*d.runtime));
}

TEST_P(HandoffTest, AWriterWhoseLinkBreaksFailsTheAttemptAtOnce) {
  if (GetParam() != TransportKind::kGrpc) GTEST_SKIP() << "speaks gRPC by hand";
  TestDecodeWorker d(Options(internal::DECODE));
  auto decode = OpenDecode(d.server->address());
  const auto start = MakeStart(*d.runtime, 1, Prompt(1, 100), 4, false);
  decode->Send(start);
  const auto landing = decode->Next();
  ASSERT_TRUE(landing.has_value() && landing->has_landing());
  {
    ScriptedStream<internal::KvPeer::Stub, internal::KvLinkRequest, internal::KvLinkReply> link;
    const auto stub = internal::KvPeer::NewStub(CreateChannel(d.server->address()));
    stub->async()->Link(link.stream()->context(), link.stream()->reactor());
    link.stream()->Start();
    internal::KvLinkRequest hello;
    hello.mutable_hello()->set_worker("p-test");
    hello.mutable_hello()->set_incarnation(5);
    hello.mutable_hello()->set_model_fingerprint(d.runtime->compatibility().model_fingerprint);
    hello.mutable_hello()->set_kv_layout(d.runtime->compatibility().kv_layout);
    link.Send(hello);
    ASSERT_TRUE(link.Next().has_value());
    internal::KvLinkRequest open;
    *open.mutable_open()->mutable_transfer() = start.start().transfer();
    open.mutable_open()->set_attempt(1);
    link.Send(open);
    const auto grant = link.Next();
    ASSERT_TRUE(grant.has_value() && grant->has_grant());
  }
  const auto failed = decode->Next();
  ASSERT_TRUE(failed.has_value() && failed->has_failed()) << (failed ? failed->DebugString() : "nothing");
  EXPECT_EQ(failed->failed().error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TEST_P(HandoffTest, ADeadDecodeWorkerFailsThePrefill) {
  TestPrefillWorker p(Options(internal::PREFILL));
  auto d = std::make_unique<TestDecodeWorker>(Options(internal::DECODE));
  internal::DecodeRequest start = MakeStart(*d->runtime, 1, Prompt(1, 100), 4, false);
  internal::LandingEvent landing;
  {
    auto decode = OpenDecode(d->server->address());
    decode->Send(start);
    const auto event = decode->Next();
    ASSERT_TRUE(event.has_value() && event->has_landing());
    landing = event->landing();
  }
  d.reset();
  auto prefill = OpenPrefill(p.server->address());
  prefill->Send(MakePrefill(start, landing));
  const auto failed = prefill->Next();
  ASSERT_TRUE(failed.has_value() && failed->has_failed());
  EXPECT_EQ(failed->failed().code(), static_cast<int>(absl::StatusCode::kUnavailable)) << failed->DebugString();
  EXPECT_TRUE(AtBaseline(*p.runtime));
}

TEST_P(HandoffTest, MalformedStartsAreRefusedAndCostNothing) {
  TestDecodeWorker d(Options(internal::DECODE));
  const auto refusal = [&](const std::function<void(internal::DecodeStart*)>& change) {
    auto decode = OpenDecode(d.server->address());
    internal::DecodeRequest request = MakeStart(*d.runtime, 9, Prompt(1, 20), 4, true);
    change(request.mutable_start());
    decode->Send(request);
    const auto event = decode->Next();
    return event.has_value() && event->has_refused() ? event->refused() : internal::Error();
  };
  const auto code = [](absl::StatusCode status) { return static_cast<int>(status); };
  internal::Error error = refusal([](auto* s) { s->clear_tokens(); });
  EXPECT_EQ(error.code(), code(absl::StatusCode::kInvalidArgument));
  error = refusal([](auto* s) { s->set_tokens(3, 320); });
  EXPECT_EQ(error.code(), code(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(error.message(), HasSubstr("tokens[3]: id 320"));
  error = refusal([](auto* s) { s->set_tokens(0, -1); });
  EXPECT_THAT(error.message(), HasSubstr("id -1"));
  error = refusal([](auto* s) { s->set_model_fingerprint("other"); });
  EXPECT_EQ(error.code(), code(absl::StatusCode::kFailedPrecondition));
  error = refusal([](auto* s) { s->set_num_prompt_tokens(21); });
  EXPECT_THAT(error.message(), HasSubstr("num_prompt_tokens 21"));
  error = refusal([](auto* s) { s->mutable_sampling()->set_top_p(std::nan("")); });
  EXPECT_THAT(error.message(), HasSubstr("top_p"));
  error = refusal([](auto* s) {
    for (int i = 0; i < 600; ++i) s->add_tokens(5);
  });
  EXPECT_THAT(error.message(), HasSubstr("over the context"));
  EXPECT_TRUE(AtBaseline(*d.runtime));
}

TEST_P(HandoffTest, ManyAtOnceEqualEachAlone) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  TestDecodeWorker alone(Options(internal::DECODE));
  constexpr int kRequests = 16;
  std::vector<std::unique_ptr<DecodeStream>> decodes;
  std::vector<std::unique_ptr<PrefillStream>> prefills;
  std::vector<internal::DecodeRequest> starts;
  for (int i = 0; i < kRequests; ++i) {
    decodes.push_back(OpenDecode(d.server->address()));
    starts.push_back(MakeStart(*d.runtime, 10 + i, Prompt(i % 4, 20 + 7 * i), 20, i % 5 == 4));
    decodes.back()->Send(starts.back());
  }
  for (int i = 0; i < kRequests; ++i) {
    if (i % 5 == 4) continue;
    const auto event = decodes[i]->Next();
    ASSERT_TRUE(event.has_value());
    if (!event->has_landing()) continue;
    prefills.push_back(OpenPrefill(p.server->address()));
    prefills.back()->Send(MakePrefill(starts[i], event->landing()));
  }
  for (int i = 0; i < kRequests; ++i) {
    const auto ids = ReadTokens(decodes[i].get());
    ASSERT_TRUE(ids.has_value()) << i;
    EXPECT_EQ(ids, Local(alone, 100 + i, Prompt(i % 4, 20 + 7 * i), 20)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HandoffTest,
                         ::testing::Values(TransportKind::kInproc, TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace baton
