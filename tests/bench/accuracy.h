// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_BENCH_ACCURACY_H_
#define BATON_TESTS_BENCH_ACCURACY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/logits_probe.h"
#include "tests/support/golden.h"

namespace baton::testing {

// How a serving path compares with the fp32 reference on prompts with known greedy answers, fed the reference's tokens.
struct AccuracyReport {
  struct Divergence {
    std::string name;  // Of the case.
    int step = 0;
    float margin = 0;  // Best minus second best in the reference.
    int32_t expected = 0;
    int32_t got = 0;
  };
  int num_positions = 0;  // Prompt positions in the mean KL: up to 512 per case.
  double mean_kl = 0;     // Nats, of KL(reference || served).
  double worst_kl = 0;
  double same_argmax = 0;  // Share of those positions.
  int num_steps = 0;
  std::vector<Divergence> lost;  // Steps with another arg max.

  double lost_share() const { return num_steps == 0 ? 0 : static_cast<double>(lost.size()) / num_steps; }
  float largest_lost_margin() const;
  // A table for people.
  std::string ToString() const;
};

// Logits of one case's prompt (its first 512 positions), from the reference.
using CaseLogits = std::vector<std::vector<float>>;
absl::StatusOr<CaseLogits> PromptLogits(LogitsProbe* probe, const GoldenCase& c);

// Runs `served` over the cases; reference[i] belongs to cases[i], and is empty where KL is not wanted.
absl::StatusOr<AccuracyReport> MeasureAccuracy(LogitsProbe* served, const std::vector<GoldenCase>& cases,
                                               const std::vector<CaseLogits>& reference);

}  // namespace baton::testing

#endif  // BATON_TESTS_BENCH_ACCURACY_H_
