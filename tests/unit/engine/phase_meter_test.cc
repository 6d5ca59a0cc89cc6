// SPDX-License-Identifier: Apache-2.0
// What a worker says it did: pairs, operations, bytes and rates, held to their definitions.
#include "common/engine/phase_meter.h"

#include "common/model/work.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/test_worker.h"

namespace baton {
namespace {

using ::baton::testing::Disaggregate;
using ::baton::testing::Heard;
using ::baton::testing::IsOk;
using ::baton::testing::kBlockSize;
using ::baton::testing::MakeSpec;
using ::baton::testing::RandomModel;
using ::baton::testing::RandomTokens;
using ::baton::testing::TestWorker;

// Pairs counted one by one: a row sees itself and what is before it.
double CountPairs(int begin, int end) {
  int64_t pairs = 0;
  for (int row = begin; row < end; ++row) {
    for (int key = 0; key < end; ++key) pairs += key <= row;
  }
  return static_cast<double>(pairs);
}

TEST(CausalPairsTest, AreTheLowerTriangle) {
  for (int n : {0, 1, 2, 15, 16, 17, 63, 64, 65, 200}) {
    EXPECT_EQ(CausalPairs(0, n), n * (n + 1) / 2);
    EXPECT_EQ(CausalPairs(n, n + 1), n + 1);
    for (int begin = 0; begin <= n; begin += 7) EXPECT_EQ(static_cast<double>(CausalPairs(begin, n)), CountPairs(begin, n));
  }
}

// Whatever the chunks, the panels, the phase that computes a row, or whether passes mix the phases.
TEST(PhaseMeterTest, PromptsCostTheirTriangleAndTokensTheirContext) {
  for (const bool decode_first : {true, false}) {
    for (const int chunk : {7, 64, 512}) {
      for (const int n : {1, 2, 16, 17, 63, 64, 65, 130}) {
        TestWorker worker(16, {.max_step_rows = chunk, .panel_rows = 5, .decode_first = decode_first});
        Heard heard;
        constexpr int kTokens = 4;
        ASSERT_THAT(worker.Generate(1, MakeSpec(RandomTokens(n, n), kTokens), &heard), IsOk());
        worker.RunUntilIdle();
        const EngineStats stats = worker.core().stats();
        EXPECT_EQ(stats.prefill.total().pairs, CountPairs(0, n - 1)) << n;
        EXPECT_EQ(stats.decode.total().pairs, CountPairs(n - 1, n - 1 + kTokens)) << n;
        EXPECT_EQ(stats.prefill.total().tokens, n - 1);
        EXPECT_EQ(stats.decode.total().tokens, kTokens);
        EXPECT_EQ(stats.prefill.total().passes, (n - 1 + chunk - 1) / chunk);
        EXPECT_EQ(stats.decode.total().passes, kTokens);
      }
    }
  }
}

TEST(PhaseMeterTest, WhatThePrefixCacheHasCostsNothing) {
  TestWorker worker(32, {.max_step_rows = 24});
  const auto prefix = RandomTokens(5 * kBlockSize, 3);
  Heard first, second;
  ASSERT_THAT(worker.Generate(1, MakeSpec(prefix, 1), &first), IsOk());
  worker.RunUntilIdle();
  const double before = worker.core().stats().prefill.total().pairs;
  auto prompt = prefix;
  const auto tail = RandomTokens(50, 4);
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  ASSERT_THAT(worker.Generate(2, MakeSpec(prompt, 1), &second), IsOk());
  worker.RunUntilIdle();
  const int cached = static_cast<int>(worker.core().stats().prompt_tokens_cached);
  ASSERT_GT(cached, 0);
  EXPECT_EQ(worker.core().stats().prefill.total().pairs - before,
            CountPairs(cached, static_cast<int>(prompt.size()) - 1));
}

TEST(PhaseMeterTest, TwoWorkersTogetherComputeEachPairOnce) {
  constexpr int kPrompt = 100, kTokens = 3;
  TestWorker prefill(16, {.max_step_rows = 32, .max_running = 0}), decode(16, {});
  Heard heard;
  ASSERT_THAT(Disaggregate(prefill, decode, 1, MakeSpec(RandomTokens(kPrompt, 1), kTokens), &heard), IsOk());
  decode.RunUntilIdle();
  const EngineStats p = prefill.core().stats(), d = decode.core().stats();
  EXPECT_EQ(p.prefill.total().pairs, CountPairs(0, kPrompt - 1));
  EXPECT_EQ(p.decode.total().passes, 0);
  EXPECT_EQ(d.prefill.total().passes, 0);
  EXPECT_EQ(d.decode.total().pairs, CountPairs(kPrompt - 1, kPrompt - 1 + kTokens));
}

TEST(PhaseMeterTest, OperationsAndBytesFollowTheFormulas) {
  TestWorker worker(16, {.max_step_rows = 32});
  const Model& model = RandomModel();
  const ModelConfig& c = model.config();
  constexpr int kPrompt = 81;
  Heard heard;
  ASSERT_THAT(worker.Generate(1, MakeSpec(RandomTokens(kPrompt, 1), 1), &heard), IsOk());
  worker.RunUntilIdle();
  const double heads = c.num_heads + 2 * c.num_kv_heads;
  const double layer = c.hidden_size * (heads * c.head_dim + c.num_heads * c.head_dim + 3.0 * c.intermediate_size);
  const double p = layer * c.num_layers, head = double{1} * c.vocab_size * c.hidden_size;
  const double pair_ops = 4.0 * c.num_heads * c.head_dim * c.num_layers;
  const EngineStats stats = worker.core().stats();
  const double n = kPrompt - 1;
  EXPECT_DOUBLE_EQ(stats.prefill.total().ops, 2 * p * n + pair_ops * n * (n + 1) / 2);
  EXPECT_DOUBLE_EQ(stats.decode.total().ops, 2 * (p + head) + pair_ops * kPrompt);
  const double kv = static_cast<double>(worker.pool().layout().token_bytes());
  EXPECT_DOUBLE_EQ(stats.decode.total().bytes, static_cast<double>(model.weight_bytes()) + kPrompt * kv);
  const double block_bytes = static_cast<double>(model.weight_bytes() - model.head().bytes);
  EXPECT_DOUBLE_EQ(stats.prefill.total().bytes, 3 * block_bytes + (32 + 64 + 80) * kv);
}

TEST(PhaseMeterTest, RatesFollowRecentWork) {
  PhaseMeter meter;
  EXPECT_EQ(RatesOf(meter.recent()).tokens_per_second, 0);
  EXPECT_EQ(RatesOf(meter.recent()).bytes_per_pass, 0);
  for (int i = 0; i < 1000; ++i) meter.Add({1, 10, 20, 30, 40, 0.1});
  const PhaseRates steady = RatesOf(meter.recent());
  EXPECT_NEAR(steady.tokens_per_second, 100, 1e-9);
  EXPECT_NEAR(steady.ops_per_second, 300, 1e-9);
  EXPECT_NEAR(steady.bytes_per_second, 400, 1e-9);
  EXPECT_NEAR(steady.ops_per_pass, 30, 1e-9);
  EXPECT_NEAR(steady.bytes_per_pass, 40, 1e-9);
  EXPECT_NEAR(steady.tokens_per_pass, 10, 1e-9);
  for (int i = 0; i < 1000; ++i) meter.Add({1, 10, 20, 30, 40, 0.05});  // Twice as fast: 50 s, 25 times the memory.
  EXPECT_NEAR(RatesOf(meter.recent()).tokens_per_second, 200, 1e-6);
  EXPECT_DOUBLE_EQ(meter.total().tokens, 20000);
  EXPECT_NEAR(meter.total().seconds, 150, 1e-9);
}

}  // namespace
}  // namespace baton
