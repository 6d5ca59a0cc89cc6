// SPDX-License-Identifier: Apache-2.0
// A router, a prefill and a decode worker as processes, on simulated GPUs and in mixed pairs: what a client gets, and what becomes
// of it when a device fails.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/kv_transfer/transport_kind.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cluster/gpu_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

struct Pair {
  const char* name;
  bool prefill_gpu, decode_gpu;
  const char* transport;
};

class GpuClusterTest : public ::testing::TestWithParam<Pair> {};

TEST_P(GpuClusterTest, GreedyIdsAreTheCpus) {
  const std::string model = WriteGpuModel();
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

std::vector<Pair> Pairs() {
  std::vector<Pair> pairs = {{"gpu_to_gpu_shm", true, true, "shm"}, {"gpu_to_gpu_grpc", true, true, "grpc"},
                             {"gpu_to_gpu_cuda_ipc", true, true, "cuda_ipc"},
                             {"cpu_to_gpu_tcp", false, true, "tcp"}, {"gpu_to_cpu_shm", true, false, "shm"}};
  if (ParseTransportKind("nccl").ok()) pairs.push_back({"gpu_to_gpu_nccl", true, true, "nccl"});
  return pairs;
}
INSTANTIATE_TEST_SUITE_P(Pairs, GpuClusterTest, ::testing::ValuesIn(Pairs()), [](const auto& info) { return std::string(info.param.name); });

// The device of one worker fails in the middle of an answer: never a wrong token, an end soon, and service by the process that
// comes after it.
class GpuFailureTest : public ::testing::TestWithParam<bool> {};

TEST_P(GpuFailureTest, AFailedDeviceCostsNoWrongToken) {
  const bool of_decode = GetParam();
  const std::string model = WriteGpuModel();
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
