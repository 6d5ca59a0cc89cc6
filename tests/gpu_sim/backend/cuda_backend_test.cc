// SPDX-License-Identifier: Apache-2.0
// Whole models on the simulated GPU, through the tables and kernels that ship: against the plain reference, and against themselves
// over every way to arrive at the same token.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "common/model/forward.h"
#include "common/model/logits_probe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/backend/simulator.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::Simulator;
using ::baton::testing::StatusIs;
using ::baton::testing::TinyModelOptions;
using ::testing::HasSubstr;

struct Subject {
  const char* name;
  const char* matmul;
  KvDtype kv;
  TinyModelOptions model;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  const auto add = [&](const char* name, const char* matmul, KvDtype kv, auto change) {
    Subject subject{name, matmul, kv, {}};
    subject.model.context_length = 2048;
    subject.model.head_dim = 64;
    subject.model.num_heads = 3;
    subject.model.num_kv_heads = 1;
    subject.model.hidden_size = 96;
    subject.model.intermediate_size = 160;
    change(subject.model);
    subjects.push_back(subject);
  };
  add("quant_q4_1", "quant", KvDtype::kF16, [](TinyModelOptions& m) {
    m.matrix_type = GgmlType::kQ4_1;
    m.embedding_type = GgmlType::kQ8_0;
    m.tied = true;
  });
  add("quant_q5_0_qwen2", "quant", KvDtype::kF16, [](TinyModelOptions& m) {
    m.architecture = "qwen2";
    m.matrix_type = GgmlType::kQ5_0;
    m.num_heads = 4;
    m.num_kv_heads = 2;
  });
  add("halves_on_decode_kernels", "quant", KvDtype::kF16, [](TinyModelOptions& m) { m.matrix_type = GgmlType::kF16; });
  add("lt_q4_0_qwen3", "cublaslt", KvDtype::kF16, [](TinyModelOptions& m) {
    m.architecture = "qwen3";
    m.matrix_type = GgmlType::kQ4_0;
    m.embedding_type = GgmlType::kIQ4_NL;  // Of the types whose rows the host makes.
  });
  add("lt_f32_bf16_kv", "cublaslt", KvDtype::kBf16, [](TinyModelOptions& m) {
    m.head_dim = 128;
    m.hidden_size = 68;
    m.intermediate_size = 75;
  });
  return subjects;
}

using Logits = std::vector<std::vector<float>>;

class CudaBackendTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    sim_.Reset();
    auto checkpoint = Checkpoint::Open(testing::WriteTempFile("tiny.gguf", testing::TinyModel(GetParam().model).Build()));
    ASSERT_THAT(checkpoint, IsOk());
    checkpoint_ = *checkpoint;
  }
  void TearDown() override {
    EXPECT_EQ(sim_.Findings(), "");
    sim_.Reset();
  }
  LogitsProbeOptions Options(const char* backend) const {
    LogitsProbeOptions options;
    options.backend = backend;
    options.kv_dtype = GetParam().kv;
    options.backend_options.num_threads = 2;
    options.backend_options.cuda_driver = Simulator::Driver();
    options.backend_options.cublas_library = Simulator::Cublas();
    if (std::string(backend) == "cuda") options.backend_options.matmul = GetParam().matmul;
    return options;
  }
  Logits Run(LogitsProbe* probe, const std::vector<int32_t>& tokens) {
    Logits logits;
    EXPECT_THAT(probe->Run(tokens, 0, [&](int, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); }), IsOk());
    return logits;
  }
  Logits Run(const LogitsProbeOptions& options, const std::vector<int32_t>& tokens) {
    auto probe = LogitsProbe::Open(checkpoint_, options);
    EXPECT_THAT(probe, IsOk());
    return probe.ok() ? Run(probe->get(), tokens) : Logits();
  }
  // The last layer's cells that a pass over `tokens` (at most a block) has computed, brought to the host while nobody has waited for the
  // pass, on streams that run only when they are waited for. `lose`: no stream waits for another.
  std::vector<uint8_t> CellsBehindAPass(const std::vector<int32_t>& tokens, bool lose) {
    std::vector<uint8_t> cells;
    auto probe = LogitsProbe::Open(checkpoint_, Options("cuda"));
    EXPECT_THAT(probe, IsOk());
    Run(probe->get(), tokens);  // What a pass allocates is there.
    const Model& model = (*probe)->model();
    auto pool = KvPool::Create((*probe)->pool()->layout(), 1, &(*probe)->backend());
    EXPECT_THAT(pool, IsOk());
    auto buffers = ForwardBuffers::Create(model, static_cast<int>(tokens.size()), 1);
    EXPECT_THAT(buffers, IsOk());
    const std::vector<int32_t> blocks = {0};
    ModelInput input;
    input.AddSequence(tokens, 0, blocks, (*pool)->layout().block_size, /*num_logits=*/0);
    const int layer = model.config().num_layers - 1;
    sim_.Set("lazy_streams", 1);
    sim_.Set("lose_stream_waits", lose ? 1 : 0);
    ForwardPass pass(&model, pool->get(), &input, buffers->get(), static_cast<int>(tokens.size()));
    pass.Finish();
    (*pool)->ToHost(layer, layer + 1, blocks);
    const std::span<const uint8_t> cell = (*pool)->Cell(layer, 0);
    cells.assign(cell.begin(), cell.end());
    sim_.Set("lose_stream_waits", 0);
    sim_.Set("lazy_streams", 0);
    return cells;
  }
  std::vector<int32_t> Tokens(int count, uint32_t seed) const {
    std::mt19937 rng(seed);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % static_cast<uint32_t>(GetParam().model.vocab_size));
    return tokens;
  }

  Simulator sim_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

// Root mean square of the difference over that of the value.
double ErrorOf(const Logits& got, const Logits& expected) {
  double squares = 0, differences = 0;
  for (size_t p = 0; p < expected.size(); ++p) {
    for (size_t i = 0; i < expected[p].size(); ++i) {
      squares += double{expected[p][i]} * expected[p][i];
      differences += std::pow(double{got[p][i]} - expected[p][i], 2);
    }
  }
  return std::sqrt(differences / squares);
}

// As close as the CPU's kernels are with the same rounding (activations in one term of 8 bits), or as bf16 is.
TEST_P(CudaBackendTest, AgreesWithTheReference) {
  const std::vector<int32_t> tokens = Tokens(70, 1);  // Over several blocks, and a tile of attention's 64 rows.
  const Logits expected = Run(Options("reference"), tokens), got = Run(Options("cuda"), tokens);
  ASSERT_EQ(got.size(), expected.size());
  LogitsProbeOptions rounded = Options("cpu");
  rounded.backend_options.activations = "one";
  const bool quantised = std::string(GetParam().matmul) == "quant" && GetParam().model.matrix_type != GgmlType::kF16;
  const double bound = quantised ? 1.3 * ErrorOf(Run(rounded, tokens), expected) : 0.03;
  const double error = ErrorOf(got, expected);
  EXPECT_LT(error, bound);
  EXPECT_GT(error, 0);  // It is not the reference that ran.
}

TEST_P(CudaBackendTest, BitsDoNotDependOnChunksOrPanels) {
  const std::vector<int32_t> tokens = Tokens(41, 2);
  LogitsProbeOptions options = Options("cuda");
  const Logits whole = Run(options, tokens);
  for (const auto& [chunk, panel] : {std::pair(32, 32), {7, 3}, {41, 11}, {1, 1}}) {
    options.chunk_tokens = chunk;
    options.panel_rows = panel;
    EXPECT_TRUE(Run(options, tokens) == whole) << "chunks of " << chunk << ", panels of " << panel;
  }
}

// By vectors, and by tensor cores for up to 16, 32 and 64 of them.
TEST_P(CudaBackendTest, BitsDoNotDependOnHowManyAreMultipliedAtOnce) {
  if (GetParam().model.matrix_type != GgmlType::kQ4_1 && GetParam().model.matrix_type != GgmlType::kQ5_0) GTEST_SKIP() << "of quantised weights";
  const std::vector<int32_t> tokens = Tokens(65, 6);
  LogitsProbeOptions options = Options("cuda");
  options.chunk_tokens = options.panel_rows = 8;
  const Logits by_eights = Run(options, tokens);
  for (const int rows : {9, 33, 64}) {
    options.chunk_tokens = options.panel_rows = rows;
    EXPECT_TRUE(Run(options, tokens) == by_eights) << rows << " at once";
  }
}

// One launch a step, once a step of its shape has been seen twice; a longer context than a graph is made for needs another. Nothing of
// it changes a bit (the test above).
TEST_P(CudaBackendTest, ADecodeStepIsOneLaunch) {
  if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
  LogitsProbeOptions options = Options("cuda");
  options.chunk_tokens = 1;
  ASSERT_OK_AND_ASSIGN(const auto probe, LogitsProbe::Open(checkpoint_, options));
  const std::vector<int32_t> tokens = Tokens(10, 5);
  const Logits first = Run(probe.get(), tokens);
  EXPECT_EQ(sim_.Count("graph_launches"), 8);
  EXPECT_TRUE(Run(probe.get(), tokens) == first);
  EXPECT_EQ(sim_.Count("graph_launches"), 18);
}

// A stream that runs only when it is waited for: whatever is used without waiting is then not there.
TEST_P(CudaBackendTest, NothingIsUsedBeforeItIsThere) {
  if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
  const std::vector<int32_t> tokens = Tokens(40, 3);
  const Logits expected = Run(Options("cuda"), tokens);
  sim_.Set("lazy_streams", 1);
  sim_.Set("reverse_warps", 1);
  LogitsProbeOptions options = Options("cuda");
  options.chunk_tokens = 17;
  EXPECT_TRUE(Run(options, tokens) == expected);
}

// The cells of a step, as an engine brings them to the host behind it: not before they have been computed, which an event says. Without that
// event they would be something else, which is how a forgotten one is noticed.
TEST_P(CudaBackendTest, WhatIsBroughtToTheHostHasBeenComputed) {
  if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
  const std::vector<int32_t> tokens = Tokens(16, 7);
  const std::vector<uint8_t> right = CellsBehindAPass(tokens, /*lose=*/false);
  EXPECT_FALSE(std::ranges::all_of(right, [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(CellsBehindAPass(tokens, /*lose=*/false), right);
  EXPECT_NE(CellsBehindAPass(tokens, /*lose=*/true), right) << "a missing event goes unnoticed";
}

// Copies of other sequences' blocks have a stream of their own: a decode step comes to its end while one of them does not.
TEST_P(CudaBackendTest, ADecodeStepDoesNotWaitForACopy) {
  if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
  LogitsProbeOptions options = Options("cuda");
  options.chunk_tokens = 1;
  ASSERT_OK_AND_ASSIGN(const auto probe, LogitsProbe::Open(checkpoint_, options));
  const std::vector<int32_t> tokens = Tokens(6, 5);
  const Logits expected = Run(probe.get(), tokens);
  for (const bool to_device : {false, true}) {
    auto pool = KvPool::Create(probe->pool()->layout(), 4, &probe->backend());
    ASSERT_THAT(pool, IsOk());
    const std::vector<int32_t> blocks = {0, 1, 2, 3};
    sim_.Set("stall_host_copy", 1);
    const CopyTicket ticket = to_device ? (*pool)->StartToDevice(blocks) : (*pool)->StartToHost(0, 1, blocks);
    EXPECT_TRUE(Run(probe.get(), tokens) == expected);
    EXPECT_FALSE((*pool)->Ended(ticket));
    sim_.Set("stall_host_copy", 0);
    (*pool)->Wait(ticket);
    EXPECT_TRUE((*pool)->Ended(ticket));
  }
}

TEST_P(CudaBackendTest, AFailedLaunchIsAnErrorAndStaysOne) {
  if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
  ASSERT_OK_AND_ASSIGN(const auto probe, LogitsProbe::Open(checkpoint_, Options("cuda")));
  const std::vector<int32_t> tokens = Tokens(5, 4);
  ASSERT_EQ(Run(probe.get(), tokens).size(), tokens.size());
  sim_.Set("fail_launch", 9);
  const auto ignore = [](int, std::span<const float>) { FAIL() << "logits of a device that failed"; };
  EXPECT_THAT(probe->Run(tokens, 0, ignore), StatusIs(absl::StatusCode::kInternal, HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
  EXPECT_THAT(probe->Run(tokens, 0, ignore), StatusIs(absl::StatusCode::kInternal, HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
}

TEST_P(CudaBackendTest, OutOfMemoryNamesTheSize) {
  if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
  sim_.Set("memory_limit", 50000);
  EXPECT_THAT(LogitsProbe::Open(checkpoint_, Options("cuda")).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("cuMemAlloc of ")));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaBackendTest, ::testing::ValuesIn(Subjects()), [](const auto& info) { return std::string(info.param.name); });

TEST(CudaShapesTest, WhatThereIsNoKernelForIsRefusedByName) {
  TinyModelOptions model;  // Heads of 16.
  auto checkpoint = Checkpoint::Open(testing::WriteTempFile("tiny.gguf", testing::TinyModel(model).Build()));
  ASSERT_THAT(checkpoint, IsOk());
  LogitsProbeOptions options;
  options.backend = "cuda";
  options.backend_options.cuda_driver = Simulator::Driver();
  options.backend_options.cublas_library = Simulator::Cublas();
  EXPECT_THAT(LogitsProbe::Open(*checkpoint, options).status(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("heads of 16, 2 to a KV head")));
  options.kv_dtype = KvDtype::kF32;
  EXPECT_THAT(LogitsProbe::Open(*checkpoint, options).status(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not in f32")));
}

}  // namespace
}  // namespace baton
