// SPDX-License-Identifier: Apache-2.0
// Two workers on simulated GPUs, one of which writes into the other's pool on the device, and what goes wrong with that: what a client gets.
#include <signal.h>

#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cluster/gpu_cluster.h"
#include "tests/support/status_matchers.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of the prefill worker, in the middle of a transfer: its process is killed, a copy changes a bit, decode's memory cannot be
// opened. What the client gets is right or an error, soon, and the pair works again by itself: by what is next best as long as that takes.
class CudaIpcFailureTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaIpcFailureTest, CostsNoWrongToken) {
  const std::string fault = GetParam();
  ExpectNoWrongToken({.plan_variable = "BATON_CUDA_SIM_IPC_PLAN", .plan = fault, .recovers_to = absl::StartsWith(fault, "kill") ? "cuda_ipc" : "shm"});
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
