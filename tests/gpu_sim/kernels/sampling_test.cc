// SPDX-License-Identifier: Apache-2.0
// Sampling on the device against a plain reference in double: the same candidates and, for the same draw, the same token.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "common/backend/cuda/kernels/kernel_types.h"
#include "tests/gpu_sim/kernels/gpu_test_support.h"

namespace baton::cuda {
namespace {

class SamplingTest : public testing::GpuTest {
 protected:
  std::vector<int> Sample(const std::vector<std::vector<float>>& logits, const std::vector<SampleParams>& params) {
    std::vector<float> flat;
    for (const auto& row : logits) flat.insert(flat.end(), row.begin(), row.end());
    const auto dlogits = Upload(flat);
    const auto dparams = Upload(params);
    const auto tokens = Poisoned<int>(logits.size());
    Run("sample", {static_cast<unsigned>(logits.size())}, {256}, dlogits.get(), static_cast<int>(logits[0].size()), dparams.get(), tokens.get());
    return Download(tokens);
  }
};

struct Choice {
  int token = 0;
  double margin = 1;  // How far the nearest decision was from going the other way, as a share of all weight.
};

Choice Reference(const std::vector<float>& logits, const SampleParams& p) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (p.scale == 0) return {order[0], 1};
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  const auto weight = [&, best = logits[order[0]]](int id) { return std::exp((double{logits[id]} - best) * p.scale); };
  std::erase_if(order, [&](int id) { return weight(id) < p.min_p; });
  Choice choice;
  double total = 0;
  for (const int id : order) total += weight(id);
  if (p.top_p < 1) {
    double mass = 0;
    size_t kept = 0;
    while (kept < order.size() && (kept == 0 || mass < p.top_p * total)) {
      mass += weight(order[kept++]);
      choice.margin = std::min(choice.margin, std::abs(mass - p.top_p * total) / total);
    }
    order.resize(kept);
    total = mass;
  }
  std::sort(order.begin(), order.end());
  double sum = 0;
  choice.token = -1;
  for (const int id : order) {
    sum += weight(id);
    choice.margin = std::min(choice.margin, std::abs(sum / total - p.uniform) + (id == order.back()));
    if (choice.token < 0 && sum > p.uniform * total) choice.token = id;
  }
  if (choice.token < 0) choice.token = order.back();
  return choice;
}

TEST_F(SamplingTest, TheReferencesTokens) {
  std::mt19937 random(91);
  int compared = 0, all = 0;
  for (const int vocab : {1, 31, 1000, 1025, 5000}) {
    std::vector<std::vector<float>> logits;
    std::vector<SampleParams> params;
    for (int row = 0; row < 16; ++row) {
      std::vector<float> x(vocab);
      for (float& value : x) {
        value = static_cast<float>(random() % 20000) * 0.0005f - 5.0f;
        if (row % 2 == 1) value = std::round(4 * value) / 4;  // Many equals.
      }
      logits.push_back(x);
      const float scales[] = {0.0f, 0.5f, 1.0f, 1.4f}, min_ps[] = {0.0f, 0.05f};
      const int top_ks[] = {0, 1, 5, 40};
      const double top_ps[] = {1.0, 0.9, 0.5, 0.0};
      params.push_back({scales[random() % 4], top_ks[random() % 4], top_ps[random() % 4], min_ps[random() % 2], (random() % 100000 + 0.5) / 100000});
    }
    const std::vector<int> tokens = Sample(logits, params);
    for (int row = 0; row < 16; ++row) {
      const Choice expected = Reference(logits[row], params[row]);
      ++all;
      if (expected.margin < 1e-6) continue;  // fp32 weights may decide either way.
      ++compared;
      EXPECT_EQ(tokens[row], expected.token) << "vocabulary " << vocab << " row " << row << " scale " << params[row].scale << " top_k " << params[row].top_k
                                             << " top_p " << params[row].top_p << " min_p " << params[row].min_p << " uniform " << params[row].uniform;
    }
  }
  EXPECT_GE(compared, all - 3);
}

TEST_F(SamplingTest, EqualLogitsAndTheEndsOfTheDraw) {
  const std::vector<float> equal(40, 1.0f);
  const std::vector<int> tokens = Sample({equal, equal, equal, equal, equal}, {{0, 0, 1, 0, 0.5}, {1, 0, 1, 0, 1e-12}, {1, 0, 1, 0, 1 - 1e-12}, {1, 7, 1, 0, 1 - 1e-12}, {1, 0, 0.5, 0, 1 - 1e-12}});
  EXPECT_EQ(tokens, (std::vector<int>{0, 0, 39, 6, 19}));
}

TEST_F(SamplingTest, LogitsThatAreNoNumbersGiveNoToken) {
  std::vector<float> row(300, 0.0f);
  std::vector<std::vector<float>> logits(4, row);
  logits[0][299] = std::numeric_limits<float>::quiet_NaN();
  logits[1][0] = std::numeric_limits<float>::infinity();
  logits[2][150] = -std::numeric_limits<float>::infinity();
  logits[3][150] = -FLT_MAX;  // Masked: fine.
  const SampleParams greedy{0, 0, 1, 0, 0.5};
  EXPECT_EQ(Sample(logits, {greedy, greedy, {1, 0, 1, 0, 0.5}, greedy}), (std::vector<int>{-1, -1, -1, 0}));
}

TEST_F(SamplingTest, EditsOfLogits) {
  std::vector<float> logits = {2, -2, 4, 1, 5, 6, 7, 8};
  logits[4] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<LogitEdit> edits = {{0, 0.5f, 3, 0}, {1, 0, 0, 0}, {2, 0, -1, 1}, {3, FLT_MAX, -1, 0}, {0, 1, 1, 1}};
  const std::vector<int> starts = {0, 3, 5};
  const std::vector<PenaltyParams> penalties = {{2.0f, 0.25f, 0.125f}, {1, 0, 0}};
  const auto dlogits = Upload(logits);
  const auto dedits = Upload(edits);
  const auto dstarts = Upload(starts);
  const auto dpenalties = Upload(penalties);
  Run("edit_logits", {2}, {128}, dlogits.get(), 4, dedits.get(), dstarts.get(), dpenalties.get());
  // (2 + 0.5) / 2 - 3 x 0.25 - 0.125; -2 x 2; masked; untouched. The second row: what is no number stays for `sample` to see; clamped.
  std::vector<float> edited = Download(dlogits);
  EXPECT_TRUE(std::isnan(edited[4]));
  edited[4] = 5;
  EXPECT_EQ(edited, (std::vector<float>{0.375f, -4, -FLT_MAX, 1, 5, 6, 7, FLT_MAX}));
}

}  // namespace
}  // namespace baton::cuda
