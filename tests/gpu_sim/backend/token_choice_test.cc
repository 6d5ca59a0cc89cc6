// SPDX-License-Identifier: Apache-2.0
// Tokens that are chosen on the simulated GPU are those that the engine's own sampler would choose from the same logits, which it
// does for requests that want log-probabilities; whoever else is in the batch.
#include <map>
#include <string>
#include <vector>

#include "common/backend/create_backend.h"
#include "common/base/logging.h"
#include "common/model/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/backend/simulator.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine/test_worker.h"

namespace baton::testing {
namespace {

constexpr int kTokens = 10;

const Model& GpuModel() {
  static const Model* const model = [] {
    TinyModelOptions options;
    options.head_dim = 64;
    options.num_heads = 3;
    options.num_kv_heads = 1;
    options.hidden_size = 96;
    options.intermediate_size = 160;
    options.weight_scale = 2.0f;
    options.matrix_type = options.embedding_type = GgmlType::kQ8_0;
    auto checkpoint = Checkpoint::Open(WriteTempFile("device_sampling.gguf", TinyModel(options).Build()));
    BATON_CHECK(checkpoint.ok()) << checkpoint.status();
    auto backend = CreateBackend("cuda", {.matmul = "quant", .cuda_driver = Simulator::Driver(), .cublas_library = Simulator::Cublas()});
    BATON_CHECK(backend.ok()) << backend.status();
    auto loaded = Model::Load(*checkpoint, backend->release());
    BATON_CHECK(loaded.ok()) << loaded.status();
    return loaded->release();
  }();
  return *model;
}

// One of each thing that can be asked for, and all together.
std::vector<SamplingParams> Kinds() {
  std::vector<SamplingParams> kinds = {
      {.temperature = 0},
      {.temperature = 1.0, .seed = 11},
      {.temperature = 0.8, .top_k = 5, .seed = 12},
      {.temperature = 1.3, .top_p = 0.7, .seed = 13},
      {.temperature = 1.0, .min_p = 0.1, .seed = 14},
      {.temperature = 0, .repetition_penalty = 1.5},
      {.temperature = 1.0, .seed = 15, .presence_penalty = 1.0, .frequency_penalty = 0.5},
      {.temperature = 0, .logit_bias = {{40, 30}, {41, -100}}},
      {.temperature = 0.9, .top_k = 20, .top_p = 0.9, .min_p = 0.01, .seed = 16, .repetition_penalty = 1.2, .presence_penalty = -0.5,
       .logit_bias = {{50, 2.5}, {60, -3}}},
  };
  // The tokens that the first kinds would choose end nothing before the seventh.
  SamplingParams stops = {.temperature = 0, .min_tokens = 7, .stop_token_ids = {}};
  for (int32_t id = 3; id < 100; ++id) stops.stop_token_ids.push_back(id);
  kinds.push_back(stops);
  return kinds;
}

SequenceSpec Spec(size_t kind, bool with_logprobs) {
  SequenceSpec spec = MakeSpec(RandomTokens(5 + static_cast<int>(kind), 100 + kind), kTokens, Kinds()[kind]);
  spec.sampling.num_logprobs = with_logprobs ? 0 : -1;
  return spec;
}

class DeviceSamplingTest : public ::testing::Test {
 protected:
  void SetUp() override { sim_.Reset(); }
  void TearDown() override {
    EXPECT_EQ(sim_.Findings(), "");
    sim_.Reset();
  }
  // Launches of kernels too, where it is the simulator.
  std::vector<int32_t> RunAlone(const SequenceSpec& spec, int64_t* launches) {
    TestWorker worker(64, {}, GpuModel(), KvDtype::kF16);
    Heard heard;
    const int64_t before = sim_.present() ? sim_.Count("launches") : 0;
    EXPECT_TRUE(worker.Generate(1, spec, &heard).ok());
    worker.RunUntilIdle();
    EXPECT_FALSE(heard.failed.has_value()) << *heard.failed;
    *launches = sim_.present() ? sim_.Count("launches") - before : 0;
    return heard.tokens[0];
  }
  Simulator sim_;
};

TEST_F(DeviceSamplingTest, IsWhatTheHostWouldChoose) {
  for (size_t kind = 0; kind < Kinds().size(); ++kind) {
    SCOPED_TRACE(kind);
    int64_t on_device = 0, on_host = 0;
    const std::vector<int32_t> tokens = RunAlone(Spec(kind, false), &on_device);
    EXPECT_EQ(tokens, RunAlone(Spec(kind, true), &on_host));
    EXPECT_GE(tokens.size(), 7u);
    // Its two kernels for every token: it is the device that chose.
    if (sim_.present()) {
      EXPECT_EQ(on_device, on_host + 2 * static_cast<int64_t>(tokens.size()));
    }
  }
}

TEST_F(DeviceSamplingTest, DoesNotDependOnTheBatch) {
  TestWorker worker(256, {}, GpuModel(), KvDtype::kF16);
  std::vector<Heard> heard(2 * Kinds().size());
  for (size_t i = 0; i < heard.size(); ++i) {
    ASSERT_TRUE(worker.Generate(i + 1, Spec(i / 2, i % 2 == 1), &heard[i]).ok());
  }
  worker.RunUntilIdle();
  for (size_t i = 0; i < heard.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_FALSE(heard[i].failed.has_value()) << *heard[i].failed;
    int64_t launches = 0;
    EXPECT_EQ(heard[i].tokens[0], RunAlone(Spec(i / 2, i % 2 == 1), &launches));
  }
}

}  // namespace
}  // namespace baton::testing
