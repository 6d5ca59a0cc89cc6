// SPDX-License-Identifier: Apache-2.0
// A router, a prefill and a decode worker as processes, on simulated GPUs and in mixed pairs: what a client gets, and what becomes
// of it when a device fails.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

std::string WriteTinyModel() {
  TinyModelOptions options;
  options.context_length = 512;
  options.head_dim = 64;
  options.num_heads = 3;
  options.num_kv_heads = 1;
  options.hidden_size = 96;
  options.intermediate_size = 160;
  options.matrix_type = GgmlType::kQ4_1;
  options.embedding_type = GgmlType::kQ8_0;
  options.weight_scale = 3.0f;  // Wide margins, mostly.
  return WriteTempFile("tiny.gguf", TinyModel(options).Build());
}

std::string OnGpu() {
  return absl::StrCat("--device=cuda --cuda-driver=", BuildPath("tests/libcuda_sim.so"), " --cublas-lt=", BuildPath("tests/libcublas_sim.so"));
}

std::vector<std::vector<int>> Prompts() {
  std::mt19937 random(11);
  std::vector<std::vector<int>> prompts;
  for (const int length : {1, 2, 5, 9, 15, 16, 17, 24, 31, 33, 48, 70}) {
    std::vector<int> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(3 + static_cast<int>(random() % 256));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// Steps of `got` that are the reference's, up to the first that is not: there the reference must have been nearly undecided, so that a
// backend's rounding may lead another way. `expected` comes with two log-probabilities a step.
constexpr float kMargin = 0.6f;
int NumStepsThatFollow(const cli::Answer& got, const cli::Answer& expected) {
  const std::vector<int>& ids = got.choices.at(0).token_ids;
  const auto& reference = expected.choices.at(0);
  EXPECT_EQ(ids.size(), reference.token_ids.size());
  int step = 0;
  for (; step < static_cast<int>(std::min(ids.size(), reference.token_ids.size())); ++step) {
    if (ids[step] == reference.token_ids[step]) continue;
    const auto& top = reference.logprobs.at(step).top();
    EXPECT_LT(top.at(0).logprob() - top.at(1).logprob(), kMargin) << "step " << step;
    break;
  }
  return step;
}
v1::GenerateRequest WithMargins(v1::GenerateRequest request) {
  request.set_logprobs(2);
  return request;
}

struct Pair {
  const char* name;
  bool prefill_gpu, decode_gpu;
  const char* transport;
};

class GpuClusterTest : public ::testing::TestWithParam<Pair> {};

TEST_P(GpuClusterTest, GreedyIdsAreTheCpus) {
  const std::string model = WriteTinyModel();
  ASSERT_OK_AND_ASSIGN(const auto cpu, LocalCluster::Start(model, {"--local-prefill", "--decode-flags=--device=cpu"}));
  std::vector<std::string> flags = {"--prefill=1", "--decode=1", absl::StrCat("--transport=", GetParam().transport)};
  flags.push_back("--prefill-flags=" + (GetParam().prefill_gpu ? OnGpu() : "--device=cpu"));
  flags.push_back("--decode-flags=" + (GetParam().decode_gpu ? OnGpu() : "--device=cpu"));
  ASSERT_OK_AND_ASSIGN(const auto gpu, LocalCluster::Start(model, flags));
  int tokens = 0;
  for (const std::vector<int>& prompt : Prompts()) {
    SCOPED_TRACE(absl::StrCat("prompt of ", prompt.size()));
    ASSERT_OK_AND_ASSIGN(const cli::Answer expected, cpu->Generate(WithMargins(GreedyRequest(prompt, 8))));
    ASSERT_OK_AND_ASSIGN(const cli::Answer first, gpu->Generate(GreedyRequest(prompt, 8)));
    tokens += NumStepsThatFollow(first, expected);
    if (prompt.size() > 1) {
      EXPECT_EQ(first.timeline.transport(), GetParam().transport);
    }
    // From the prefix caches the bits are the same.
    ASSERT_OK_AND_ASSIGN(const cli::Answer again, gpu->Generate(GreedyRequest(prompt, 8)));
    EXPECT_EQ(again.choices.at(0).token_ids, first.choices.at(0).token_ids);
  }
  EXPECT_GE(tokens, 40);  // Of 96.
  EXPECT_TRUE(Eventually([&] { return gpu->Idle(); }));
}

INSTANTIATE_TEST_SUITE_P(Pairs, GpuClusterTest,
                         ::testing::Values(Pair{"gpu_to_gpu_shm", true, true, "shm"}, Pair{"gpu_to_gpu_grpc", true, true, "grpc"},
                                           Pair{"cpu_to_gpu_tcp", false, true, "tcp"}, Pair{"gpu_to_cpu_shm", true, false, "shm"}),
                         [](const auto& info) { return std::string(info.param.name); });

// The device of one worker fails in the middle of an answer: never a wrong token, an end soon, and service by the process that
// comes after it.
class GpuFailureTest : public ::testing::TestWithParam<bool> {};

TEST_P(GpuFailureTest, AFailedDeviceCostsNoWrongToken) {
  const bool of_decode = GetParam();
  const std::string model = WriteTinyModel();
  ASSERT_OK_AND_ASSIGN(const auto cpu, LocalCluster::Start(model, {"--local-prefill", "--decode-flags=--device=cpu"}));
  const v1::GenerateRequest request = GreedyRequest(Prompts().back(), 60);
  ASSERT_OK_AND_ASSIGN(const cli::Answer expected, cpu->Generate(WithMargins(request)));
  // Warming up takes some 60 launches of it.
  ASSERT_EQ(setenv("BATON_CUDA_SIM_PLAN", WriteTempFile("plan", "fail_launch 300\n").c_str(), 1), 0);
  auto started = LocalCluster::Start(model, {"--prefill=1", "--decode=1", "--prefill-flags=" + (of_decode ? "--device=cpu" : OnGpu()),
                                             "--decode-flags=" + (of_decode ? OnGpu() : "--device=cpu")});
  ASSERT_EQ(unsetenv("BATON_CUDA_SIM_PLAN"), 0);
  ASSERT_THAT(started, IsOk());
  const auto gpu = *std::move(started);
  bool failed = false;
  for (int i = 0; i < 40 && !failed; ++i) {
    v1::GenerateRequest fresh = request;
    fresh.mutable_token_ids()->mutable_ids()->Set(0, 3 + i);
    const auto answer = gpu->Generate(i == 0 ? request : fresh);
    if (i == 0 && answer.ok()) NumStepsThatFollow(*answer, expected);
    if (!answer.ok()) {
      EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
    }
    failed = gpu->log().find("CUDA_ERROR_LAUNCH_FAILED") != std::string::npos;
  }
  EXPECT_TRUE(failed);
  EXPECT_TRUE(Eventually([&] {
    const auto answer = gpu->Generate(request);
    if (!answer.ok() || !answer->timeline.disaggregated()) return false;
    NumStepsThatFollow(*answer, expected);
    return true;
  }));
  EXPECT_TRUE(Eventually([&] { return gpu->Idle(); }));
}

INSTANTIATE_TEST_SUITE_P(Roles, GpuFailureTest, ::testing::Values(false, true),
                         [](const auto& info) { return std::string(info.param ? "decode" : "prefill"); });

}  // namespace
}  // namespace baton::testing
