// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/measurement.h"

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

MonotonicTime At(double ms) { return absl::Seconds(1000) + absl::Milliseconds(ms); }

Measurement Stream(double sent, std::vector<double> pieces) {
  Measurement m{.due = At(sent - 1), .sent = At(sent), .ended = At(pieces.back() + 5), .http_status = 200, .prompt_tokens = 10};
  for (double piece : pieces) m.pieces.push_back(At(piece));
  m.output_tokens = static_cast<int>(pieces.size());
  return m;
}

TEST(Summarize, InterpolatesLikeNumpy) {
  const Summary s = Summarize({4, 1, 3, 2, 100});
  EXPECT_DOUBLE_EQ(s.mean, 22);
  EXPECT_DOUBLE_EQ(s.median, 3);
  EXPECT_DOUBLE_EQ(s.p90, 4 + 96 * 0.6);
  EXPECT_DOUBLE_EQ(s.p99, 4 + 96 * 0.96);
  EXPECT_DOUBLE_EQ(s.max, 100);
  EXPECT_EQ(Summarize({}).count, 0u);
  EXPECT_DOUBLE_EQ(Summarize({7}).p99, 7);
}

TEST(Report, HasTheDefinitionsOfTheFigures) {
  // Two tokens in the second piece's step count once as a gap, but as tokens for TPOT.
  Measurement a = Stream(0, {100, 110, 130});
  a.output_tokens = 5;
  const Report report = MakeReport({a, Stream(50, {90, 100})}, At(1000));
  EXPECT_EQ(report.num_succeeded, 2);
  EXPECT_DOUBLE_EQ(report.ttft_ms.mean, (100 + 40) / 2.0);
  EXPECT_DOUBLE_EQ(report.e2el_ms.mean, (130 + 50) / 2.0);
  EXPECT_DOUBLE_EQ(report.tpot_ms.mean, (30 / 4.0 + 10) / 2);
  EXPECT_DOUBLE_EQ(report.itl_ms.median, 10);
  EXPECT_EQ(report.itl_ms.count, 3u);
  EXPECT_DOUBLE_EQ(report.lag_ms.mean, 1);
  EXPECT_DOUBLE_EQ(report.duration_s, 0.135);
  EXPECT_EQ(report.output_tokens, 7);
}

TEST(Report, WhatFailedIsCountedByReasonAndNothingElse) {
  Measurement refused{.due = At(0), .sent = At(0), .ended = At(1), .status = absl::UnavailableError("no worker"), .http_status = 503};
  Measurement silent{.due = At(0), .sent = At(0), .ended = At(1), .http_status = 200};
  Measurement cut = Stream(0, {5, 6});
  cut.status = absl::DataLossError("the stream ended without [DONE]");
  const Report report = MakeReport({refused, refused, silent, cut, Stream(0, {10, 20})}, At(100));
  EXPECT_EQ(report.num_succeeded, 1);
  EXPECT_EQ(report.num_failed, 4);
  EXPECT_EQ(report.ttft_ms.count, 1u);
  EXPECT_THAT(report.errors, ElementsAre(Pair("200 DATA_LOSS: the stream ended without [DONE]", 1), Pair("200 no token came", 1),
                                         Pair("503 no worker", 2)));
}

TEST(Report, ManyKindsOfErrorsAreAFewLines) {
  std::vector<Measurement> failed;
  for (int i = 0; i < 300; ++i) {
    const int token = i < 100 ? 7 : i;
    failed.push_back({.due = At(0), .sent = At(0), .ended = At(1), .status = absl::UnavailableError(absl::StrCat("token ", token)), .http_status = 400});
  }
  const Report report = MakeReport(failed, At(100));
  EXPECT_EQ(report.num_failed, 300);
  EXPECT_EQ(report.errors.size(), 11u);
  EXPECT_EQ(report.errors.at("400 token 7"), 100);
  EXPECT_EQ(report.errors.at("other errors, 191 kinds"), 191);
  const std::string text = ReportText(report);
  EXPECT_LT(text.find("191 x other errors, 191 kinds"), text.find("100 x 400 token 7"));
}

TEST(Report, SplitsGapsAtTheFirstLongPromptAndEndsWithTheLoad) {
  Measurement burst = Stream(100, {300, 310});
  burst.burst = true;
  const Report report = MakeReport({Stream(0, {10, 20, 30, 130, 160, 190, 900}), burst}, At(200));
  EXPECT_EQ(report.num_succeeded, 1);
  EXPECT_EQ(report.quiet_itl_ms.count, 2u);
  EXPECT_DOUBLE_EQ(report.quiet_itl_ms.max, 10);
  EXPECT_EQ(report.burst_itl_ms.count, 3u);
  EXPECT_DOUBLE_EQ(report.burst_itl_ms.max, 100);
  EXPECT_DOUBLE_EQ(report.burst_output_rate, 3 / 0.1);
  EXPECT_DOUBLE_EQ(report.burst_ttft_ms.median, 200);
  EXPECT_THAT(ReportText(report), HasSubstr("with long prompts"));
}

TEST(Report, JsonHasTheNamesOfVllm) {
  const auto json = ParseJson(ReportJson(MakeReport({Stream(0, {10, 20})}, At(30))));
  ASSERT_TRUE(json.ok());
  for (const char* name : {"completed", "duration", "total_input_tokens", "total_output_tokens", "request_throughput", "output_throughput",
                           "mean_ttft_ms", "median_tpot_ms", "p99_itl_ms", "p99.5_itl_ms", "p90_e2el_ms"}) {
    EXPECT_TRUE(json->contains(name)) << name;
  }
  EXPECT_FALSE(json->contains("burst"));
}

}  // namespace
}  // namespace baton::bench
