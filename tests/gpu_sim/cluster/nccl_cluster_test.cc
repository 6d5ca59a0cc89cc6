// SPDX-License-Identifier: Apache-2.0
// Two workers on simulated GPUs that hand over by a simulated NCCL, which fails: what a client gets.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cluster/gpu_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton::testing {
namespace {

// Of one worker, in the middle of a transfer by NCCL: its process is killed, or NCCL stalls, fails, or differs about a size. What the
// client gets is right or an error, soon, and the pair works again by itself.
class NcclFailureTest : public ::testing::TestWithParam<const char*> {};

TEST_P(NcclFailureTest, CostsNoWrongToken) {
  const std::string model = WriteGpuModel();
  ASSERT_OK_AND_ASSIGN(const auto cpu, LocalCluster::Start(model, {"--local-prefill", "--decode-flags=--device=cpu"}));
  const v1::GenerateRequest request = GreedyRequest(Prompts().back(), 8);
  const std::string plan = WriteTempFile("plan", GetParam());
  ASSERT_EQ(setenv("BATON_NCCL_SIM_PLAN", plan.c_str(), 1), 0);
  auto started = LocalCluster::Start(model, {"--prefill=1", "--decode=1", "--transport=nccl", "--prefill-flags=" + OnGpu() + " --transfer-timeout=2s",
                                             "--decode-flags=" + OnGpu() + " --transfer-timeout=2s"});
  ASSERT_EQ(unsetenv("BATON_NCCL_SIM_PLAN"), 0);
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
    return answer.ok() && answer->timeline.transport() == "nccl";
  }));
  EXPECT_TRUE(Eventually([&] { return gpu->Idle(); }));
}

INSTANTIATE_TEST_SUITE_P(Faults, NcclFailureTest,
                         ::testing::Values("kill_send 2\n", "kill_recv 2\n", "stall_send 2\n", "stall_recv 2\n", "error_recv 2\n", "short_send 2\n"),
                         [](const auto& info) { return std::string(info.param, std::string(info.param).find(' ')); });

}  // namespace
}  // namespace baton::testing
