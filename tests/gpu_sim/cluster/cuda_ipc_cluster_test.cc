// SPDX-License-Identifier: Apache-2.0
// Two workers on simulated GPUs, one of which writes into the other's pool on the device, and what goes wrong with that: what a client gets.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cluster/gpu_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of the prefill worker, in the middle of a transfer: its process is killed, a copy changes a bit, decode's memory cannot be
// opened. What the client gets is right or an error, soon, and the pair works again by itself: by what is next best as long as that takes.
class CudaIpcFailureTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaIpcFailureTest, CostsNoWrongToken) {
  const std::string fault = GetParam();
  const std::string model = WriteGpuModel();
  ASSERT_OK_AND_ASSIGN(const auto cpu, LocalCluster::Start(model, {"--local-prefill", "--decode-flags=--device=cpu"}));
  const v1::GenerateRequest request = GreedyRequest(Prompts().back(), 8);
  const std::string plan = WriteTempFile("plan", fault);
  ASSERT_EQ(setenv("BATON_CUDA_SIM_IPC_PLAN", plan.c_str(), 1), 0);
  auto started = LocalCluster::Start(model, {"--prefill=1", "--decode=1", "--prefill-flags=" + OnGpu() + " --transfer-timeout=2s",
                                             "--decode-flags=" + OnGpu() + " --transfer-timeout=2s"});
  ASSERT_EQ(unsetenv("BATON_CUDA_SIM_IPC_PLAN"), 0);
  ASSERT_THAT(started, IsOk());
  const auto gpu = *std::move(started);
  // Prompts of their own, that none is in a cache.
  for (int i = 0; i < 3; ++i) {
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
  const std::string expected = absl::StartsWith(fault, "kill") ? "cuda_ipc" : "shm";
  int next = 20;
  EXPECT_TRUE(Eventually([&] {
    v1::GenerateRequest fresh = request;
    fresh.mutable_token_ids()->mutable_ids()->Set(0, next++);
    const auto answer = gpu->Generate(fresh);
    return answer.ok() && answer->timeline.transport() == expected;
  })) << expected;
  EXPECT_TRUE(Eventually([&] { return gpu->Idle(); }));
}

// A decode worker that ends in order, while a prefill worker that lives on has its pool open.
TEST(CudaIpcEndTest, APoolIsFreedWhenNobodyHasItOpen) {
  ASSERT_OK_AND_ASSIGN(const auto gpu, LocalCluster::Start(WriteGpuModel(), {"--prefill=1", "--decode=1", "--prefill-flags=" + OnGpu(),
                                                                             "--decode-flags=" + OnGpu()}));
  ASSERT_OK_AND_ASSIGN(const cli::Answer answer, gpu->Generate(GreedyRequest(Prompts().back(), 4)));
  EXPECT_EQ(answer.timeline.transport(), "cuda_ipc");
  const pid_t decode = gpu->PidOf("d-1");
  ASSERT_GT(decode, 0);
  ASSERT_EQ(kill(decode, SIGTERM), 0);
  EXPECT_TRUE(Eventually([&] { return gpu->PidOf("d-1") != decode; }));
  EXPECT_THAT(gpu->log(), Not(HasSubstr("another process has open")));
  EXPECT_THAT(gpu->log(), Not(HasSubstr("have not closed this process's pool")));
}

INSTANTIATE_TEST_SUITE_P(Faults, CudaIpcFailureTest,
                         ::testing::Values("kill_peer_copy 2\n", "flip_peer_copy 2\n", "fail_ipc_open 1\n"),
                         [](const auto& info) { return std::string(info.param, std::string(info.param).find(' ')); });

}  // namespace
}  // namespace baton::testing
