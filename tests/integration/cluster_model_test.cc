// SPDX-License-Identifier: Apache-2.0
// The model that the quickstart serves, through a cluster, against reference values of its own.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/golden.h"
#include "tests/support/sanitizers.h"
#include "tests/support/status_matchers.h"

namespace baton::testing {
namespace {

// Steps whose margin is smaller may go another way, because the serving path rounds differently from the reference.
constexpr float kMargin = 0.25f;

TEST(ClusterModelTest, GreedyIdsFollowTheReference) {
  const auto model = FindSmolLm2();
  if (!model) GTEST_SKIP() << "no SmolLM2 file: run deploy/fetch_model";
  ASSERT_OK_AND_ASSIGN(const auto apart, LocalCluster::Start(*model, {"--prefill=1", "--decode=1", "--kv-memory=512MiB"}));
  ASSERT_OK_AND_ASSIGN(const auto together, LocalCluster::Start(*model, {"--local-prefill", "--kv-memory=512MiB"}));
  int compared = 0;
  for (const GoldenCase& golden : LoadSmolLm2Golden()) {
    SCOPED_TRACE(golden.name);
    const std::vector<int> prompt(golden.prompt_ids.begin(), golden.prompt_ids.end());
    const int steps = static_cast<int>(golden.greedy_ids.size());
    if (steps == 0) continue;
    if (kSlowness > 1 && prompt.size() > 100) continue;  // Minutes of it.
    ASSERT_OK_AND_ASSIGN(const cli::Answer first, apart->Generate(GreedyRequest(prompt, steps)));
    ASSERT_OK_AND_ASSIGN(const cli::Answer second, together->Generate(GreedyRequest(prompt, steps)));
    const std::vector<int>& ids = first.choices.at(0).token_ids;
    EXPECT_EQ(ids, second.choices.at(0).token_ids);
    ASSERT_EQ(ids.size(), static_cast<size_t>(steps));
    for (int step = 0; step < steps; ++step, ++compared) {
      if (ids[step] == golden.greedy_ids[step]) continue;
      EXPECT_LT(golden.margins[step], kMargin) << "step " << step << ": " << ids[step] << ", not " << golden.greedy_ids[step];
      break;  // From here on the prompts differ.
    }
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace baton::testing
