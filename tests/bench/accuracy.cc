// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/accuracy.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton::testing {
namespace {

constexpr size_t kMaxPositions = 512;

}  // namespace

float AccuracyReport::largest_lost_margin() const {
  float largest = 0;
  for (const Divergence& d : lost) largest = std::max(largest, d.margin);
  return largest;
}

std::string AccuracyReport::ToString() const {
  std::string text = absl::StrFormat(
      "prompt positions %d: mean KL %.6f nats, worst %.4f, same arg max %.2f %%\n"
      "greedy steps %d: %d with another arg max (%.2f %%), largest margin %.3f\n",
      num_positions, mean_kl, worst_kl, 100 * same_argmax, num_steps, static_cast<int>(lost.size()),
      100 * lost_share(), largest_lost_margin());
  for (const Divergence& d : lost) {
    text += absl::StrFormat("  %s step %d: margin %.4f, expected %d, got %d\n", d.name, d.step, d.margin, d.expected,
                            d.got);
  }
  return text;
}

absl::StatusOr<CaseLogits> PromptLogits(LogitsProbe* probe, const GoldenCase& c) {
  CaseLogits logits;
  const size_t count = std::min(c.prompt_ids.size(), kMaxPositions);
  BATON_RETURN_IF_ERROR(probe->Run(std::span(c.prompt_ids).first(count), 0, [&](int, std::span<const float> row) {
    logits.emplace_back(row.begin(), row.end());
  }));
  return logits;
}

absl::StatusOr<AccuracyReport> MeasureAccuracy(LogitsProbe* served, const std::vector<GoldenCase>& cases,
                                               const std::vector<CaseLogits>& reference) {
  AccuracyReport report;
  double kl_sum = 0;
  int same = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenCase& c = cases[i];
    const int num_prompt = static_cast<int>(c.prompt_ids.size());
    std::vector<int32_t> tokens = c.prompt_ids;
    tokens.insert(tokens.end(), c.greedy_ids.begin(), c.greedy_ids.end() - 1);
    const auto sink = [&](int position, std::span<const float> logits) {
      if (static_cast<size_t>(position) < reference[i].size()) {
        const std::vector<float>& expected = reference[i][static_cast<size_t>(position)];
        const double kl = KlDivergence(expected, logits);
        kl_sum += kl;
        report.worst_kl = std::max(report.worst_kl, kl);
        same += ArgMax(expected) == ArgMax(logits) ? 1 : 0;
        ++report.num_positions;
      }
      if (position < num_prompt - 1) return;
      const size_t step = static_cast<size_t>(position - num_prompt + 1);
      ++report.num_steps;
      if (const int got = ArgMax(logits); got != c.greedy_ids[step]) {
        report.lost.push_back({c.name, static_cast<int>(step), c.margins[step], c.greedy_ids[step], got});
      }
    };
    BATON_RETURN_IF_ERROR(served->Run(tokens, reference[i].empty() ? num_prompt - 1 : 0, sink));
  }
  if (report.num_positions > 0) {
    report.mean_kl = kl_sum / report.num_positions;
    report.same_argmax = static_cast<double>(same) / report.num_positions;
  }
  return report;
}

}  // namespace baton::testing
