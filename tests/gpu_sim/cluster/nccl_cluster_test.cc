// SPDX-License-Identifier: Apache-2.0
// Two workers on simulated GPUs that hand over by a simulated NCCL, which fails: what a client gets.
#include <string>

#include "gtest/gtest.h"
#include "tests/gpu_sim/cluster/gpu_cluster.h"

namespace baton::testing {
namespace {

// Of one worker, in the middle of a transfer by NCCL: its process is killed, or NCCL stalls, fails, or differs about a size. What the
// client gets is right or an error, soon, and the pair works again by itself.
class NcclFailureTest : public ::testing::TestWithParam<const char*> {};

TEST_P(NcclFailureTest, CostsNoWrongToken) {
  ExpectNoWrongToken({.plan_variable = "BATON_NCCL_SIM_PLAN", .plan = GetParam(), .flags = {"--transport=nccl"}, .recovers_to = "nccl"});
}

INSTANTIATE_TEST_SUITE_P(Faults, NcclFailureTest,
                         ::testing::Values("kill_send 2\n", "kill_recv 2\n", "stall_send 2\n", "stall_recv 2\n", "error_recv 2\n", "short_send 2\n"),
                         [](const auto& info) { return std::string(info.param, std::string(info.param).find(' ')); });

}  // namespace
}  // namespace baton::testing
