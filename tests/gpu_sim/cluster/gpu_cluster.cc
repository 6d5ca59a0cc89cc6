// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/cluster/gpu_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

constexpr float kMargin = 0.6f;

}  // namespace

std::string WriteGpuModel() {
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
  return absl::StrCat("--device=cuda --cuda-driver=", BuildPath("tests/libcuda_sim.so"), " --cublas-lt=", BuildPath("tests/libcublas_sim.so"),
                      " --nccl=", BuildPath("tests/libnccl_sim.so"));
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


void ExpectNoWrongToken(const TransferFault& fault) {
  const std::string model = WriteGpuModel();
  ASSERT_OK_AND_ASSIGN(const auto cpu, LocalCluster::Start(model, {"--local-prefill", "--decode-flags=--device=cpu"}));
  const v1::GenerateRequest request = GreedyRequest(Prompts().back(), 8);
  const std::string plan = WriteTempFile("plan", fault.plan);
  std::vector<std::string> flags = {"--prefill=1", "--decode=1", "--prefill-flags=" + OnGpu() + " --transfer-timeout=2s",
                                    "--decode-flags=" + OnGpu() + " --transfer-timeout=2s"};
  flags.insert(flags.end(), fault.flags.begin(), fault.flags.end());
  ASSERT_EQ(setenv(fault.plan_variable.c_str(), plan.c_str(), 1), 0);
  auto started = LocalCluster::Start(model, flags);
  ASSERT_EQ(unsetenv(fault.plan_variable.c_str()), 0);
  ASSERT_THAT(started, IsOk());
  const auto gpu = *std::move(started);
  // Prompts of their own, that none is in a cache.
  for (int i = 0; i < 4; ++i) {
    v1::GenerateRequest fresh = request;
    fresh.mutable_token_ids()->mutable_ids()->Set(0, 3 + i);
    const v1::GenerateRequest& asked = i == 0 ? request : fresh;
    const auto answer = gpu->Generate(asked);
    if (!answer.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(answer.status()) || absl::IsDeadlineExceeded(answer.status())) << answer.status();
      continue;
    }
    ASSERT_OK_AND_ASSIGN(const cli::Answer right, cpu->Generate(WithMargins(asked)));
    NumStepsThatFollow(*answer, right);
  }
  EXPECT_EQ(access(plan.c_str(), F_OK), -1) << "nothing went wrong";
  int next = 20;
  EXPECT_TRUE(Eventually([&] {
    v1::GenerateRequest fresh = request;
    fresh.mutable_token_ids()->mutable_ids()->Set(0, next++);
    const auto answer = gpu->Generate(fresh);
    return answer.ok() && answer->timeline.transport() == fault.recovers_to;
  })) << fault.recovers_to;
  EXPECT_TRUE(Eventually([&] { return gpu->Idle(); }));
}

}  // namespace baton::testing
