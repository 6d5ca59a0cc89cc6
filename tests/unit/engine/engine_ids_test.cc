// SPDX-License-Identifier: Apache-2.0
// The ids of a request, on every backend, are those that it gets on a worker of its own.
#include <algorithm>

#include "common/engine/engine_core.h"
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
using ::baton::testing::RandomCpuModel;
using ::baton::testing::RandomModel;
using ::baton::testing::RandomTokens;
using ::baton::testing::RunAlone;
using ::baton::testing::TestWorker;

class EngineIds : public ::testing::TestWithParam<const Model& (*)()> {
 protected:
  const Model& model() const { return GetParam()(); }
};

INSTANTIATE_TEST_SUITE_P(Backends, EngineIds, ::testing::Values(&RandomModel, &RandomCpuModel),
                         [](const auto& info) { return info.index == 0 ? "reference" : "cpu"; });

// 32 requests of mixed lengths, lengths of answer, and ways of sampling.
std::vector<SequenceSpec> MixedRequests() {
  std::vector<SequenceSpec> specs;
  for (int i = 0; i < 32; ++i) {
    SamplingParams sampling = {.temperature = i % 3 == 0 ? 0.0 : 0.8, .seed = static_cast<uint64_t>(i)};
    if (i % 4 == 1) sampling.top_p = 0.9;
    if (i % 4 == 2) sampling.top_k = 5;
    if (i % 5 == 3) sampling.repetition_penalty = 1.3;
    if (i % 5 == 4) sampling.frequency_penalty = 0.7;
    specs.push_back(MakeSpec(RandomTokens(1 + (i * 37) % 90, 100 + i), 3 + (i * 7) % 30, sampling));
  }
  return specs;
}

// B34, A44: alone or in a batch, whatever the chunks, panels and order of passes.
TEST_P(EngineIds, DoNotDependOnBatchChunksOrPasses) {
  const std::vector<SequenceSpec> specs = MixedRequests();
  std::vector<std::map<int, std::vector<int32_t>>> alone;
  for (const SequenceSpec& spec : specs) alone.push_back(RunAlone(spec, model()));
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.max_step_rows = 7, .panel_rows = 3}, EngineOptions{.panel_rows = 1},
        EngineOptions{.max_step_rows = 64, .max_running = 8, .shortest_remaining_first = true},
        EngineOptions{.sharing = {.prefill_share = 0}}, EngineOptions{.max_step_rows = 40, .decode_first = false},
        EngineOptions{.max_step_rows = 5, .max_running = 3, .decode_first = false},
        EngineOptions{.enable_prefix_cache = false}}) {
    TestWorker worker(300, options, model());
    std::vector<Heard> heard(specs.size());
    size_t next = 0;
    // One joins at every pause of a pass, while others run.
    const auto join = [&] {
      if (next == specs.size()) return;
      ASSERT_THAT(worker.Generate(next, specs[next], &heard[next]), IsOk());
      ++next;
    };
    join();
    while (next < specs.size()) worker.RunUntilIdle(join);
    for (size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(heard[i].tokens, alone[i]) << "request " << i << ", rows " << options.max_step_rows;
      EXPECT_EQ(heard[i].num_prefilled, 1);
    }
    EXPECT_TRUE(worker.AtBaseline());
  }
}

// A14, A29, A31: prefill elsewhere, with every length of what decode has cached already.
TEST_P(EngineIds, AreTheSameDisaggregatedWhateverIsCached) {
  for (int n : {1, 2, kBlockSize - 1, kBlockSize, kBlockSize + 1, 2 * kBlockSize, 2 * kBlockSize + 1, 75}) {
    const auto prompt = RandomTokens(n, n);
    const SequenceSpec spec = MakeSpec(prompt, 20);
    const auto expected = RunAlone(spec, model());
    for (int warm : {0, 1, kBlockSize - 1, kBlockSize, kBlockSize + 1, n - 1, n}) {
      TestWorker prefill(16, {.max_step_rows = 20, .max_running = 0, .panel_rows = 8}, model()), decode(16, {}, model());
      Heard warmup, heard;
      if (warm > 0) {
        const auto part = MakeSpec({prompt.begin(), prompt.begin() + std::min(warm, n)}, 1);
        ASSERT_THAT(Disaggregate(prefill, decode, 1, part, &warmup), IsOk());
        decode.RunUntilIdle();
      }
      ASSERT_THAT(Disaggregate(prefill, decode, 2, spec, &heard), IsOk());
      decode.RunUntilIdle();
      EXPECT_EQ(heard.tokens, expected) << n << " tokens, " << warm << " warm";
      EXPECT_TRUE(prefill.AtBaseline());
      EXPECT_TRUE(decode.AtBaseline());
    }
  }
}

// A17: neither loses a token when the pool is too small for both.
TEST_P(EngineIds, SurvivePreemption) {
  for (bool decode_first : {true, false}) {
    for (bool cache : {true, false}) {
      const int blocks = 28;  // One request of 300 tokens takes 19.
      TestWorker worker(blocks, {.enable_prefix_cache = cache, .decode_first = decode_first}, model());
      std::vector<SequenceSpec> specs;
      for (int i = 0; i < 2; ++i) specs.push_back(MakeSpec(RandomTokens(100, 60 + i), 200));
      specs[1].sampling = {.temperature = 0.9, .seed = 5, .repetition_penalty = 1.1, .max_tokens = 200};
      std::vector<Heard> heard(2);
      for (int i = 0; i < 2; ++i) ASSERT_THAT(worker.Generate(i, specs[i], &heard[i]), IsOk());
      worker.RunUntilIdle();
      EXPECT_GT(worker.core().stats().preemptions, 0u);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(heard[i].tokens.at(0).size(), 200u);
        EXPECT_EQ(heard[i].tokens, RunAlone(specs[i], model())) << i;
      }
      EXPECT_TRUE(worker.AtBaseline());
    }
  }
}

}  // namespace
}  // namespace baton
