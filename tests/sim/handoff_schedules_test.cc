// SPDX-License-Identifier: Apache-2.0
// The handoff's real classes under random schedules on a virtual clock; and each of the rules of tests/protocol, broken on
// purpose, must be noticed.
#include <string>

#include "common/base/logging.h"
#include "gtest/gtest.h"
#include "tests/sim/handoff_simulation.h"

namespace baton::testing {
namespace {

// The same schedule again, with everything that happened.
std::string TraceOf(uint64_t seed) {
  HandoffSimulation simulation(seed, Fault::kNone);
  simulation.StartTrace();
  simulation.Run();
  return simulation.trace();
}

class HandoffSchedulesTest : public ::testing::Test {
 protected:
  void SetUp() override { SetLogOptions({.min_severity = LogSeverity::kERROR}); }
  void TearDown() override { SetLogOptions({}); }
};

TEST_F(HandoffSchedulesTest, EveryScheduleEndsAtBaselineAndRunsOnNoWrongByte) {
  int finished = 0;
  for (uint64_t seed = 1; seed <= 10000; ++seed) {
    HandoffSimulation simulation(seed, Fault::kNone);
    const std::string wrong = simulation.Run();
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << TraceOf(seed);
    finished += simulation.num_finished();
  }
  // Or it would be about nothing.
  EXPECT_GT(finished, 10000);
}

class PlantedFaultTest : public HandoffSchedulesTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(PlantedFaultTest, IsNoticed) {
  for (uint64_t seed = 1; seed <= 10000; ++seed) {
    HandoffSimulation simulation(seed, GetParam());
    const std::string wrong = simulation.Run();
    if (wrong.empty()) continue;
    RecordProperty("seed", static_cast<int>(seed));
    RecordProperty("noticed", wrong);
    return;
  }
  ADD_FAILURE() << FaultName(GetParam()) << " went unnoticed in 10,000 schedules";
}

std::vector<Fault> AllFaults() {
  std::vector<Fault> faults;
  for (int fault = static_cast<int>(kFirstFault); fault <= static_cast<int>(kLastFault); ++fault) {
    faults.push_back(static_cast<Fault>(fault));
  }
  return faults;
}

INSTANTIATE_TEST_SUITE_P(Rules, PlantedFaultTest, ::testing::ValuesIn(AllFaults()),
                         [](const auto& info) { return std::string(FaultName(info.param)); });

}  // namespace
}  // namespace baton::testing
