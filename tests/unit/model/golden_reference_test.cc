// SPDX-License-Identifier: Apache-2.0
// The plain fp32 reference, and the serving path on unquantised weights, against values computed by another program.
#include <cmath>
#include <cstdlib>

#include "common/backend/reference_ops.h"
#include "common/model/logits_probe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/sanitizers.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::ArgMax;
using ::baton::testing::GoldenCase;
using ::baton::testing::GoldenTinyCase;
using ::baton::testing::IsOk;
using ::baton::testing::LogSumExp;

LogitsProbeOptions ReferenceOptions() {
  LogitsProbeOptions options;
  options.backend = "reference";
  options.kv_dtype = KvDtype::kF32;
  options.chunk_tokens = 128;
  return options;
}

std::vector<int32_t> PromptAndAnswer(const std::vector<int32_t>& prompt, const std::vector<int32_t>& greedy) {
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);
  return tokens;
}

void ExpectSameKv(const LogitsProbe& probe, const GoldenCase& c) {
  const int last = static_cast<int>(c.prompt_ids.size()) - 1;
  const KvLayout& layout = probe.pool()->layout();
  const int block_size = layout.block_size, head_dim = layout.head_dim;
  const bool interleaved = probe.model().config().rope.interleaved;
  for (const GoldenCase::Kv& kv : c.kv) {
    const uint8_t* k = probe.pool()->Cell(kv.layer, last / block_size).data();
    const uint8_t* v = k + layout.block_layer_bytes() / 2;
    for (int i = 0; i < 8; ++i) {
      // Element i of the half-split order is the first of pair i.
      const int d = interleaved ? 2 * i : i;
      EXPECT_NEAR(LoadKvElement(k, int64_t{d} * block_size + last % block_size, layout.dtype),
                  kv.key_last_head0_first8[static_cast<size_t>(i)], 1e-3)
          << c.name << " layer " << kv.layer << " key " << i;
      EXPECT_NEAR(LoadKvElement(v, int64_t{last % block_size} * head_dim + i, layout.dtype),
                  kv.value_last_head0_first8[static_cast<size_t>(i)], 1e-3)
          << c.name << " layer " << kv.layer << " value " << i;
    }
  }
}

TEST(GoldenReferenceTest, SmolLm2) {
  const auto path = testing::FindSmolLm2();
  if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 model file: deploy/fetch_model fetches it";
  ASSERT_OK_AND_ASSIGN(const auto probe, LogitsProbe::Open(*path, ReferenceOptions()));
  // The long prompts take a minute here: BATON_TEST_ALL=1 includes them.
  const size_t max_tokens = std::getenv("BATON_TEST_ALL") != nullptr ? 100000 : testing::kSlowness > 1 ? 40 : 128;
  for (const GoldenCase& c : testing::LoadSmolLm2Golden()) {
    if (c.prompt_ids.size() > max_tokens) continue;
    const int num_prompt = static_cast<int>(c.prompt_ids.size());
    double worst_logit = 0, worst_lse = 0;
    const auto sink = [&](int position, std::span<const float> logits) {
      for (const GoldenCase::At& at : c.at) {
        if (at.position != position) continue;
        for (size_t i = 0; i < at.ids.size(); ++i) {
          worst_logit = std::max<double>(
              worst_logit, std::abs(logits[static_cast<size_t>(at.ids[i])] - at.logits[i]));
        }
        worst_lse = std::max(worst_lse, std::abs(LogSumExp(logits) - at.logsumexp));
      }
      if (position >= num_prompt - 1) {
        const size_t step = static_cast<size_t>(position - num_prompt + 1);
        EXPECT_EQ(ArgMax(logits), c.greedy_ids[step]) << c.name << " step " << step << " margin " << c.margins[step];
        EXPECT_NEAR(testing::Margin(logits), c.margins[step], 2e-3) << c.name << " step " << step;
      }
    };
    ASSERT_THAT(probe->Run(PromptAndAnswer(c.prompt_ids, c.greedy_ids), 0, sink), IsOk());
    EXPECT_LE(worst_logit, 2e-3) << c.name;
    EXPECT_LE(worst_lse, 1e-3) << c.name;
    ExpectSameKv(*probe, c);
  }
}

class GoldenTinyTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(GoldenTinyTest, Agrees) {
  const auto folder = testing::FindTinyModels();
  if (!folder.has_value()) GTEST_SKIP() << "the tiny models are not on this machine";
  const auto& [name, backend] = GetParam();
  const std::string path = *folder + "/" + name;
  LogitsProbeOptions options = ReferenceOptions();
  options.backend = backend;
  ASSERT_OK_AND_ASSIGN(const auto probe, LogitsProbe::Open(path, options));
  for (const GoldenTinyCase& c : testing::LoadTinyGolden(path)) {
    const int num_prompt = static_cast<int>(c.prompt_ids.size());
    const auto sink = [&](int position, std::span<const float> logits) {
      if (position < num_prompt) {
        EXPECT_EQ(ArgMax(logits), c.all_positions_argmax[static_cast<size_t>(position)]) << "position " << position;
      }
      if (position == num_prompt - 1) {
        for (size_t i = 0; i < c.last_logits_first16.size(); ++i) {
          EXPECT_NEAR(logits[i], c.last_logits_first16[i], 1e-3) << "logit " << i;
        }
        EXPECT_NEAR(LogSumExp(logits), c.last_logsumexp, 1e-3);
      }
      if (position >= num_prompt - 1) {
        const size_t step = static_cast<size_t>(position - num_prompt + 1);
        EXPECT_EQ(ArgMax(logits), c.greedy_ids[step]) << "step " << step << " margin " << c.margins[step];
      }
    };
    ASSERT_THAT(probe->Run(PromptAndAnswer(c.prompt_ids, c.greedy_ids), 0, sink), IsOk());
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, GoldenTinyTest,
                         ::testing::Combine(::testing::Values("llama3_rope_scaled", "llama_tied_gqa",
                                                              "mistral_head_dim", "qwen2_bias", "qwen3_qk_norm"),
                                            ::testing::Values("reference", "cpu")));

}  // namespace
}  // namespace baton
