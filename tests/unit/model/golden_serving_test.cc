// SPDX-License-Identifier: Apache-2.0
// How right the serving path is on SmolLM2-135M-Instruct Q4_1, fed the reference's tokens. The bounds are the project's; the
// table of every divergence is printed. KL is measured on the short prompts here, on all by tests/bench/accuracy.
#include <cstdio>

#include "common/model/logits_probe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/accuracy.h"
#include "tests/support/golden.h"
#include "tests/support/sanitizers.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::AccuracyReport;
using ::baton::testing::CaseLogits;
using ::baton::testing::GoldenCase;
using ::baton::testing::IsOk;

class GoldenServingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::FindSmolLm2();
    if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 model file: deploy/fetch_model fetches it";
    ASSERT_OK_AND_ASSIGN(checkpoint_, Checkpoint::Open(*path));
    cases_ = testing::LoadSmolLm2Golden();
  }
  std::unique_ptr<LogitsProbe> Open(const LogitsProbeOptions& options) {
    auto probe = LogitsProbe::Open(checkpoint_, options);
    EXPECT_THAT(probe, IsOk());
    return probe.ok() ? *std::move(probe) : nullptr;
  }
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<GoldenCase> cases_;
};

TEST_F(GoldenServingTest, AgreesWithTheReferenceWithinTheBounds) {
  // A sanitizer's build takes half an hour for what is counted here: it runs the same code on the short prompts.
  if (testing::kSlowness > 1) std::erase_if(cases_, [](const GoldenCase& c) { return c.prompt_ids.size() > 50; });
  std::vector<CaseLogits> reference(cases_.size());
  {
    LogitsProbeOptions options;
    options.backend = "reference";
    options.kv_dtype = KvDtype::kF32;
    const auto probe = Open(options);
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (cases_[i].prompt_ids.size() > 100) continue;
      ASSERT_OK_AND_ASSIGN(reference[i], testing::PromptLogits(probe.get(), cases_[i]));
    }
  }
  const auto served = Open({});
  ASSERT_OK_AND_ASSIGN(const AccuracyReport report, testing::MeasureAccuracy(served.get(), cases_, reference));
  std::printf("%s\n%s", served->backend().numerics_id().c_str(), report.ToString().c_str());
  if (testing::kSlowness == 1) {
    EXPECT_GT(report.num_positions, 200);
    EXPECT_EQ(report.num_steps, 283);
  }
  EXPECT_GT(report.num_steps, 100);
  EXPECT_LT(report.mean_kl, 0.001);
  EXPECT_LE(report.lost_share(), 0.015);
  EXPECT_LT(report.largest_lost_margin(), 0.15f);
}

// What keys and values in eight bits cost: README.md of common/kv has the figures.
TEST_F(GoldenServingTest, AgreesWithIntegerKeysAndValues) {
  std::erase_if(cases_, [](const GoldenCase& c) { return c.prompt_ids.size() > 50; });
  std::vector<CaseLogits> reference(cases_.size());
  LogitsProbeOptions options;
  options.backend = "reference";
  options.kv_dtype = KvDtype::kF32;
  const auto exact = Open(options);
  for (size_t i = 0; i < cases_.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(reference[i], testing::PromptLogits(exact.get(), cases_[i]));
  }
  options = {};
  options.kv_dtype = KvDtype::kInt8;
  const auto served = Open(options);
  ASSERT_OK_AND_ASSIGN(const AccuracyReport report, testing::MeasureAccuracy(served.get(), cases_, reference));
  std::printf("%s\n%s", served->backend().numerics_id().c_str(), report.ToString().c_str());
  EXPECT_LT(report.mean_kl, 0.003);
  EXPECT_LE(report.lost_share(), 0.015);
  EXPECT_LT(report.largest_lost_margin(), 0.5f);
}

TEST_F(GoldenServingTest, BitsDoNotDependOnChunksPanelsOrThreads) {
  const GoldenCase& c = cases_.back();
  constexpr int kTokens = testing::kSlowness > 1 ? 100 : 600;
  std::vector<int32_t> tokens(c.prompt_ids.begin(), c.prompt_ids.begin() + kTokens);
  std::vector<std::vector<float>> expected;
  for (const auto& [chunk, panel, threads] : {std::tuple(kTokens, 256, 1), {64, 64, 2}, {37, 20, 3}}) {
    LogitsProbeOptions options;
    options.chunk_tokens = chunk;
    options.panel_rows = panel;
    options.backend_options.num_threads = threads;
    const auto probe = Open(options);
    std::vector<std::vector<float>> got;
    ASSERT_THAT(probe->Run(tokens, kTokens - 10, [&](int, std::span<const float> row) { got.emplace_back(row.begin(), row.end()); }),
                IsOk());
    if (expected.empty()) expected = got;
    EXPECT_TRUE(got == expected) << "chunks of " << chunk << ", panels of " << panel << ", threads " << threads;
  }
}

}  // namespace
}  // namespace baton
