// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/workload.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton::bench {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Workload, PromptsHaveTheirLengthsAndPrefixes) {
  const Workload workload({.input_tokens = 20, .output_tokens = 7, .prefix_tokens = 50, .num_prefixes = 2});
  const Turn a = workload.MakeTurn(0, 0), b = workload.MakeTurn(1, 0), c = workload.MakeTurn(2, 0);
  EXPECT_EQ(a.words.size(), 70u);
  EXPECT_EQ(a.max_tokens, 7);
  EXPECT_TRUE(std::equal(a.words.begin(), a.words.begin() + 50, c.words.begin()));
  EXPECT_FALSE(std::equal(a.words.begin(), a.words.begin() + 50, b.words.begin()));
  EXPECT_NE(std::vector(a.words.begin() + 50, a.words.end()), std::vector(c.words.begin() + 50, c.words.end()));
  EXPECT_EQ(a.words, workload.MakeTurn(0, 0).words);
}

TEST(Workload, OnlyTheFirstTurnHasThePrefix) {
  const Workload workload({.kind = PromptKind::kChat, .input_tokens = 20, .prefix_tokens = 50, .turns = 3});
  EXPECT_EQ(workload.MakeTurn(4, 0).words.size(), 70u);
  EXPECT_EQ(workload.MakeTurn(4, 1).words.size(), 20u);
  EXPECT_NE(workload.MakeTurn(4, 1).words, workload.MakeTurn(4, 2).words);
}

TEST(Workload, SpreadStaysWithinItsBounds) {
  const Workload workload({.input_tokens = 100, .output_tokens = 10, .spread = 0.5});
  size_t least = 1000, most = 0;
  for (int i = 0; i < 500; ++i) {
    const Turn turn = workload.MakeTurn(i, 0);
    least = std::min(least, turn.words.size());
    most = std::max(most, turn.words.size());
    EXPECT_GE(turn.max_tokens, 5);
    EXPECT_LE(turn.max_tokens, 15);
  }
  EXPECT_GE(least, 50u);
  EXPECT_LT(least, 60u);
  EXPECT_LE(most, 150u);
  EXPECT_GT(most, 140u);
}

TEST(Workload, PoissonArrivalsHaveTheRateAndTheSpreadOfOne) {
  Workload workload({.arrival = Arrival::kPoisson, .request_rate = 4});
  double sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double gap = absl::ToDoubleSeconds(workload.NextInterval());
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.25, 0.01);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), 0.25, 0.01);  // An exponential's deviation is its mean.
}

TEST(Workload, IdsStayInTheirRangeAndTextHasAWordPerToken) {
  const std::vector<uint32_t> words = Workload({.input_tokens = 1000}).MakeTurn(0, 0).words;
  for (int32_t id : PromptIds(words, 512)) {
    EXPECT_GE(id, kFirstId);
    EXPECT_LT(id, 512);
  }
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(PromptText(words), ' ')).size(), 1000u);
}

TEST(Workload, RefusesWhatMakesNoSense) {
  const struct {
    WorkloadOptions options;
    const char* message;
  } cases[] = {
      {{.concurrency = 0}, "--concurrency 0 is under 1"},
      {{.num_requests = 0}, "--num-requests 0 needs a --duration"},
      {{.spread = 1}, "--spread 1 is outside [0, 1)"},
      {{.arrival = Arrival::kPoisson, .request_rate = 0}, "--request-rate 0 is not over 0"},
      {{.turns = 2}, "--turns 2 needs --prompt text or chat"},
      {{.vocab_size = kFirstId}, "--vocab-size 300 is under 301"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(CheckWorkload(c.options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
  EXPECT_TRUE(CheckWorkload({}).ok());
  WorkloadOptions options;
  EXPECT_THAT(ApplyProfile("huge", &options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("short-question-long-answer")));
}

}  // namespace
}  // namespace baton::bench
