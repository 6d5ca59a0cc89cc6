// SPDX-License-Identifier: Apache-2.0
// What a prefill worker caches is sent on as if it had been computed there: a history that was held in a coarser type than its own
// pool's, wherever on its way, is not pulled but computed.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/worker_pair.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using namespace ::baton::testing;

constexpr int kFirst = 70, kAnswer = 30, kNew = 9;
using Ids = std::optional<std::vector<int32_t>>;

class HistoryPrecisionTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    TinyModelOptions model;
    model.num_layers = 2;
    path_ = WriteTempFile("history_precision_test.gguf", TinyModel(model).Build());
  }
  WorkerOptions Options(internal::WorkerRole role, KvDtype dtype) const {
    WorkerOptions options;
    options.role = role;
    options.id = role == internal::PREFILL ? "p-1" : "d-1";
    options.model_path = path_;
    options.backend.num_threads = 1;
    options.kv_memory_bytes = 4 << 20;
    options.kv_dtype = dtype;
    options.transports = {GetParam()};
    options.pull_history = PullHistory::kAlways;
    return options;
  }
  WorkerOptions Prefill(KvDtype dtype) const { return Options(internal::PREFILL, dtype); }
  WorkerOptions Decode(KvDtype dtype) const { return Options(internal::DECODE, dtype); }

  static std::vector<int32_t> FirstPrompt() {
    std::vector<int32_t> prompt(kFirst);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(3 + (i * i * 31 + i * 7) % 256);
    return prompt;
  }
  static std::vector<int32_t> SecondPrompt(const Ids& answer) {
    std::vector<int32_t> prompt = FirstPrompt();
    EXPECT_TRUE(answer.has_value());
    if (answer.has_value()) prompt.insert(prompt.end(), answer->begin(), answer->end());
    for (int i = 0; i < kNew; ++i) prompt.push_back(5 + 11 * i);
    return prompt;
  }
  static Ids Local(TestDecodeWorker& d, uint64_t id, const std::vector<int32_t>& prompt, int max_tokens) {
    auto decode = OpenDecode(d.server->address());
    decode->Send(MakeStart(*d.runtime, id, prompt, max_tokens, /*local=*/true));
    return ReadTokens(decode.get());
  }

  // What became of one prompt computed by `p` for `d`.
  struct Turn {
    Ids ids;
    bool asked = false;  // For the history.
    int computed = 0, history = 0;
  };
  static Turn Run(TestPrefillWorker& p, TestDecodeWorker& d, uint64_t id, const std::vector<int32_t>& prompt, int max_tokens) {
    Turn turn;
    auto decode = OpenDecode(d.server->address());
    auto prefill = OpenPrefill(p.server->address());
    const auto start = MakeStart(*d.runtime, id, prompt, max_tokens, /*local=*/false);
    decode->Send(start);
    const auto landing = decode->Next();
    if (!landing.has_value() || !landing->has_landing()) return turn;
    prefill->Send(MakePrefill(start, landing->landing(), /*with_history=*/true));
    auto event = prefill->Next();
    if (event.has_value() && event->has_history()) {
      turn.asked = true;
      decode->Send(MakeSendHistory(1, event->history()));
      event = prefill->Next();
    }
    if (!event.has_value() || !event->has_done()) {
      ADD_FAILURE() << "prefill did not end: " << (event ? event->DebugString() : "nothing");
      return turn;
    }
    turn.computed = event->done().computed_tokens();
    turn.history = event->done().history_tokens();
    turn.ids = ReadTokens(decode.get());
    return turn;
  }

  std::string path_;
};

constexpr int kToPrefill = kFirst + kAnswer + kNew - 1;
constexpr int kCached = (kFirst + kAnswer - 1) / 16 * 16;

TEST_P(HistoryPrecisionTest, WhatADecodePoolLacksIsComputed) {
  const struct {
    KvDtype prefill, decode;
    bool pulled;
  } cases[] = {
      {KvDtype::kF16, KvDtype::kF16, true},   {KvDtype::kF16, KvDtype::kF32, true},    {KvDtype::kF16, KvDtype::kInt8, false},
      {KvDtype::kF16, KvDtype::kBf16, false}, {KvDtype::kBf16, KvDtype::kF16, false},  {KvDtype::kF32, KvDtype::kF16, false},
      {KvDtype::kInt8, KvDtype::kF16, true},  {KvDtype::kInt8, KvDtype::kInt8, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(KvDtypeName(c.prefill), " from ", KvDtypeName(c.decode)));
    TestPrefillWorker p(Prefill(c.prefill));
    TestDecodeWorker d(Decode(c.decode));
    const std::vector<int32_t> prompt = SecondPrompt(Local(d, 1, FirstPrompt(), kAnswer));
    const Turn turn = Run(p, d, 2, prompt, 8);
    EXPECT_TRUE(turn.asked);
    EXPECT_EQ(turn.history, c.pulled ? kCached : 0);
    EXPECT_EQ(turn.computed, c.pulled ? kToPrefill - kCached : kToPrefill);
    EXPECT_TRUE(turn.ids.has_value());
    if (c.pulled) continue;
    EXPECT_EQ(Metric(*p.runtime, "baton_kv_histories_total", "result=\"failed\""), 1);
    // What it has cached is what it would have without that decode worker: another one of its own type gets nothing coarser.
    TestDecodeWorker other(Decode(c.prefill)), alone(Decode(c.prefill));
    const Turn next = Run(p, other, 3, prompt, 12);
    EXPECT_LT(next.computed, 16);
    EXPECT_EQ(next.ids, Local(alone, 1, prompt, 12));
  }
}

// The same pool on both sides, and eight bits in between: the second prefill worker has to compute.
TEST_P(HistoryPrecisionTest, WhatCameInEightBitsIsNotSentOn) {
  WorkerOptions decode = Decode(KvDtype::kF16);
  decode.int8_wire = true;
  const bool in_eight_bits = !TransportOf(GetParam()).one_sided;  // Whoever writes into the pool himself writes what it has.
  TestPrefillWorker p1(Prefill(KvDtype::kF16)), p2(Prefill(KvDtype::kF16));
  TestDecodeWorker d(decode);
  const std::vector<int32_t> prompt = SecondPrompt(Run(p1, d, 1, FirstPrompt(), kAnswer).ids);
  const Turn turn = Run(p2, d, 2, prompt, 8);
  EXPECT_TRUE(turn.asked);
  EXPECT_EQ(turn.history, in_eight_bits ? 0 : kCached);
  EXPECT_EQ(turn.computed, in_eight_bits ? kToPrefill : kToPrefill - kCached);
  TestDecodeWorker other(Decode(KvDtype::kF16)), alone(Decode(KvDtype::kF16));
  EXPECT_EQ(Run(p2, other, 3, prompt, 12).ids, Local(alone, 1, prompt, 12));
}

TEST_P(HistoryPrecisionTest, WhatWasComputedInAnotherTypeIsNotSentOn) {
  TestPrefillWorker p1(Prefill(KvDtype::kBf16)), p2(Prefill(KvDtype::kF16));
  TestDecodeWorker d(Decode(KvDtype::kF16));
  const std::vector<int32_t> prompt = SecondPrompt(Run(p1, d, 1, FirstPrompt(), kAnswer).ids);
  const Turn turn = Run(p2, d, 2, prompt, 8);
  EXPECT_TRUE(turn.asked);
  EXPECT_EQ(turn.computed, kToPrefill);
}

// A prefill worker that is told to have KV in eight bits has none come: what it pulls it sends on.
TEST_P(HistoryPrecisionTest, APullComesAsThePoolHasIt) {
  WorkerOptions prefill = Prefill(KvDtype::kF16);
  prefill.int8_wire = true;
  TestPrefillWorker p(prefill);
  TestDecodeWorker d(Decode(KvDtype::kF16)), other(Decode(KvDtype::kF16)), alone(Decode(KvDtype::kF16));
  const std::vector<int32_t> prompt = SecondPrompt(Local(d, 1, FirstPrompt(), kAnswer));
  EXPECT_EQ(Run(p, d, 2, prompt, 8).history, kCached);
  EXPECT_EQ(Metric(*p.runtime, "baton_kv_history_bytes_total"), static_cast<double>(kCached * d.runtime->pool()->layout().token_bytes()));
  EXPECT_EQ(Run(p, other, 3, prompt, 12).ids, Local(alone, 1, prompt, 12));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HistoryPrecisionTest,
                         ::testing::Values(TransportKind::kInproc, TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace baton
