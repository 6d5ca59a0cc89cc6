// SPDX-License-Identifier: Apache-2.0
#include "common/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "common/base/rng.h"
#include "common/engine/logit_kernels.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(int n, uint64_t seed, float spread = 3) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

// A step of a choice whose prompt is `prompt` and which has generated `generated`.
SampledToken SampleOnce(const std::vector<float>& logits, const SamplingParams& params,
                        std::vector<int32_t> prompt = {0}, const std::vector<int32_t>& generated = {}, int choice = 0) {
  const int num_prompt_tokens = static_cast<int>(prompt.size());
  prompt.insert(prompt.end(), generated.begin(), generated.end());
  const SamplingState state(&params, choice, prompt, num_prompt_tokens);
  Sampler sampler(static_cast<int>(logits.size()));
  auto token = sampler.Sample(logits, state);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? *token : SampledToken();
}

int32_t Pick(const std::vector<float>& logits, const SamplingParams& params, std::vector<int32_t> prompt = {0},
             const std::vector<int32_t>& generated = {}) {
  return SampleOnce(logits, params, std::move(prompt), generated).token_id;
}

int32_t ArgMax(const std::vector<float>& x) {
  return static_cast<int32_t>(std::ranges::max_element(x) - x.begin());
}

// Ids drawn over many seeds.
std::map<int32_t, int> Histogram(const std::vector<float>& logits, SamplingParams params, int draws = 2000) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    params.seed = 77 + i;
    ++counts[Pick(logits, params)];
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheFirstOfTheBest) {
  for (int n : {1, 2, 15, 16, 17, 63, 64, 65, 1000, 49152}) {
    auto logits = RandomLogits(n, n);
    const SamplingParams greedy = {.temperature = 0};
    EXPECT_EQ(Pick(logits, greedy), ArgMax(logits)) << n;
    logits[n / 2] = logits[n - 1] = 50;
    EXPECT_EQ(Pick(logits, greedy), n / 2) << n;
  }
}

TEST(Sampler, TinyTemperaturesAreGreedy) {
  auto logits = RandomLogits(1000, 1);
  logits[500] = std::nextafter(logits[ArgMax(logits)], -kInfinity);
  for (double t : {0.0, 1e-4, 1e-8, 1e-30, 1e-320}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const SamplingParams params = {.temperature = t, .seed = seed, .num_logprobs = 3};
      const SampledToken token = SampleOnce(logits, params);
      EXPECT_EQ(token.token_id, ArgMax(logits)) << t;
      EXPECT_TRUE(std::isfinite(token.logprob));
      for (const auto& top : token.top) EXPECT_TRUE(std::isfinite(top.logprob));
    }
  }
}

TEST(Sampler, LargeTemperaturesStayInsideTheVocabulary) {
  const auto logits = RandomLogits(100, 2);
  for (double t : {2.0, 100.0, 1e300}) {
    for (const auto& [id, count] : Histogram(logits, {.temperature = t}, 300)) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, 100);
    }
  }
}

// B31: the edges of each cut.
TEST(Sampler, CutsAtTheirEdges) {
  const auto logits = RandomLogits(500, 3);
  const int32_t best = ArgMax(logits);
  const SamplingParams off = {};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SamplingParams p = off;
    p.seed = seed;
    const int32_t free = Pick(logits, p);
    for (int top_k : {0, -1, 500, 100000}) {
      p = {.top_k = top_k, .seed = seed};
      EXPECT_EQ(Pick(logits, p), free) << "top_k " << top_k;
    }
    p = {.top_k = 1, .seed = seed};
    EXPECT_EQ(Pick(logits, p), best);
    p = {.top_p = 1e-9, .seed = seed};
    EXPECT_EQ(Pick(logits, p), best);
    p = {.min_p = 1.0, .seed = seed};
    EXPECT_EQ(Pick(logits, p), best);
    p = {.top_k = 499, .top_p = 1e-9, .min_p = 1e-9, .seed = seed};
    EXPECT_EQ(Pick(logits, p), best);
    p = {.temperature = 100, .top_k = 3, .top_p = 0.999, .min_p = 0.999, .seed = seed};
    EXPECT_GE(logits[Pick(logits, p)], logits[best] - 100);
  }
}

TEST(Sampler, TopKKeepsExactlyTheBestKOfEquals) {
  const std::vector<float> flat(300, 1.5f);
  for (int k : {2, 7, 64, 299}) {
    std::set<int32_t> seen;
    for (const auto& [id, count] : Histogram(flat, {.top_k = k}, 40 * k)) seen.insert(id);
    EXPECT_EQ(static_cast<int>(seen.size()), k);
    EXPECT_EQ(*seen.rbegin(), k - 1);  // The smaller ids.
  }
}

TEST(Sampler, MinPKeepsWhatIsWithinTheRatio) {
  std::vector<float> logits(100, -50.0f);
  logits[3] = 0;
  logits[40] = std::log(0.6f);
  logits[70] = std::log(0.4f);
  const auto counts = Histogram(logits, {.min_p = 0.5});
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(3) && counts.contains(40));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.1f), std::log(0.25f), std::log(0.05f)};
  struct Case {
    double top_p;
    std::set<int32_t> expected;
  };
  for (const Case& c : {Case{0.49, {1}}, {0.51, {1, 3}}, {0.74, {1, 3}}, {0.76, {0, 1, 3}}, {0.86, {0, 1, 2, 3}},
                        {0.96, {0, 1, 2, 3, 4}}}) {
    std::set<int32_t> seen;
    for (const auto& [id, count] : Histogram(logits, {.top_p = c.top_p})) seen.insert(id);
    EXPECT_EQ(seen, c.expected) << c.top_p;
  }
}

// The set that a sort finds, for distributions from peaked to flat.
TEST(Sampler, TopPAgreesWithSorting) {
  for (float spread : {0.0f, 0.01f, 0.5f, 2.0f, 8.0f}) {
    for (double top_p : {0.3, 0.9, 0.99}) {
      const auto logits = RandomLogits(2000, 5, spread);
      std::vector<int32_t> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
      double total = 0, mass = 0;
      for (float x : logits) total += std::exp(static_cast<double>(x));
      size_t n = 0;
      while (n < order.size() && mass < top_p * total) mass += std::exp(static_cast<double>(logits[order[n++]]));
      const std::set<int32_t> nucleus(order.begin(), order.begin() + n);
      for (const auto& [id, count] : Histogram(logits, {.top_p = top_p}, 300)) {
        // One token more or less by rounding: the sampler's weights are single precision.
        EXPECT_TRUE(nucleus.contains(id) || id == order[n]) << "spread " << spread << " top_p " << top_p;
      }
    }
  }
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.2f), -80.0f, std::log(0.3f)};
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 3}, SamplingParams{.top_p = 0.9999}, SamplingParams{.min_p = 0.01}}) {
    const auto counts = Histogram(logits, params, 4000);
    EXPECT_NEAR(counts.at(0), 2000, 160);
    EXPECT_NEAR(counts.at(1), 800, 160);
    EXPECT_NEAR(counts.at(3), 1200, 160);
    EXPECT_FALSE(counts.contains(2));
  }
}

// B32: the number depends on seed, choice and position, and on nothing else.
TEST(Sampler, DrawsAreKeyedBySeedChoiceAndPosition) {
  const std::vector<float> flat(4096, 0.0f);
  const SamplingParams params = {.seed = 42};
  const int32_t token = SampleOnce(flat, params, {1, 2}, {3}).token_id;
  EXPECT_EQ(SampleOnce(flat, params, {9, 9, 9}).token_id, token);
  EXPECT_EQ(SampleOnce(flat, params, {1, 2, 3, 4}).token_id != token ||
                SampleOnce(flat, params, {1, 2}, {3}, 1).token_id != token,
            true);
  SamplingParams other = params;
  other.seed = 43;
  EXPECT_NE(SampleOnce(flat, other, {1, 2}, {3}).token_id, token);
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndGenerated) {
  std::vector<float> logits = {2.0f, 1.9f, 1.8f, -1.0f};
  const SamplingParams params = {.temperature = 0, .repetition_penalty = 1.3};
  EXPECT_EQ(Pick(logits, params, {3}), 0);
  EXPECT_EQ(Pick(logits, params, {0}), 1);
  EXPECT_EQ(Pick(logits, params, {0}, {1}), 2);
  EXPECT_EQ(Pick(logits, params, {0, 0, 0}, {1, 1, 2}), 0);  // Once per token, not per occurrence.
  const std::vector<float> negative = {-1.0f, -1.2f};
  EXPECT_EQ(Pick(negative, params, {0}), 1);  // A negative logit is multiplied.
}

// A41: presence and frequency look at generated tokens only, and logprobs are the model's own.
TEST(Sampler, PresenceAndFrequencyCountGeneratedOnly) {
  const std::vector<float> logits = {2.0f, 1.5f, 0.0f};
  SamplingParams params = {.temperature = 0, .presence_penalty = 2, .num_logprobs = 0};
  const std::vector<int32_t> prompt(50, 0);
  const SampledToken plain = SampleOnce(logits, {.temperature = 0, .num_logprobs = 0}, prompt);
  const SampledToken penalised = SampleOnce(logits, params, prompt);
  EXPECT_EQ(penalised.token_id, 0);
  EXPECT_EQ(penalised.logprob, plain.logprob);
  EXPECT_EQ(Pick(logits, params, prompt, {0}), 1);
  params = {.temperature = 0, .frequency_penalty = 0.2};
  EXPECT_EQ(Pick(logits, params, prompt, {0, 0}), 0);
  EXPECT_EQ(Pick(logits, params, prompt, {0, 0, 0}), 1);
  params = {.temperature = 0, .presence_penalty = -2, .frequency_penalty = 0};
  EXPECT_EQ(Pick(logits, params, {0}, {2}), 0);
  EXPECT_EQ(Pick({1.0f, 0.0f}, params, {0}, {1}), 1);
}

// B35: a banned token has a finite logprob, the model's own.
TEST(Sampler, LogitBias) {
  const auto logits = RandomLogits(200, 9);
  const int32_t best = ArgMax(logits);
  const SampledToken banned = SampleOnce(logits, {.temperature = 0, .logit_bias = {{best, -100}}, .num_logprobs = 20});
  EXPECT_NE(banned.token_id, best);
  ASSERT_EQ(banned.top.size(), 20u);
  EXPECT_EQ(banned.top[0].token_id, best);
  for (const auto& top : banned.top) EXPECT_TRUE(std::isfinite(top.logprob));
  EXPECT_EQ(Pick(logits, {.temperature = 0, .logit_bias = {{7, 100}}}), 7);
  SamplingParams all_banned = {};
  for (int32_t id = 0; id < 200; ++id) all_banned.logit_bias.push_back({id, -100});
  EXPECT_EQ(Pick(logits, all_banned), Pick(logits, {}));  // Shifting all changes nothing but rounding.
}

TEST(Sampler, StopTokensAreMaskedBeforeMinTokens) {
  const std::vector<float> logits = {1, 9, 8, 0};
  SamplingParams params = {.temperature = 0, .max_tokens = 9, .min_tokens = 2, .stop_token_ids = {2, 1}};
  EXPECT_EQ(Pick(logits, params), 0);
  EXPECT_EQ(Pick(logits, params, {0}, {3}), 0);
  EXPECT_EQ(Pick(logits, params, {0}, {3, 3}), 1);
  params.temperature = 50;
  for (const auto& [id, count] : Histogram(logits, params, 300)) EXPECT_TRUE(id == 0 || id == 3);
  params.top_k = 3;
  for (const auto& [id, count] : Histogram(logits, params, 300)) EXPECT_TRUE(id == 0 || id == 3);
  // As high a temperature as there is: all that is not masked weighs the same, and nothing is no number.
  params.temperature = std::numeric_limits<double>::max();
  for (const int top_k : {0, 3}) {
    params.top_k = top_k;
    const auto histogram = Histogram(logits, params, 300);
    EXPECT_EQ(histogram.size(), 2u);
    for (const auto& [id, count] : histogram) EXPECT_TRUE((id == 0 || id == 3) && count > 100) << id;
  }
  params.stop_token_ids = {0, 1, 2, 3};
  EXPECT_GE(Pick(logits, params), 0);  // Nothing else to choose: no empty set.
}

TEST(Sampler, WhatABackendNeedsToChoose) {
  const std::vector<int32_t> tokens = {7, 8, 9, 9};
  SamplingParams params = {.temperature = 0.5, .top_k = 40, .top_p = 0.9, .min_p = 0.05, .seed = 3, .repetition_penalty = 1.5,
                           .presence_penalty = 0.25, .frequency_penalty = 0.125, .logit_bias = {{9, 2}, {1, -100}}, .max_tokens = 9,
                           .min_tokens = 5, .stop_token_ids = {9, 2}};
  const TokenChoice choice = SamplingState(&params, 0, tokens, 2).NextChoice(50);
  EXPECT_FALSE(choice.by_host);
  EXPECT_EQ(choice.scale, 2);
  EXPECT_EQ(choice.top_k, 40);
  EXPECT_EQ(choice.uniform, CounterRng(3, 0, 4).NextUniformDouble());
  std::map<int32_t, LogitChange> changes;
  for (const LogitChange& change : choice.changes) EXPECT_TRUE(changes.emplace(change.token_id, change).second) << change.token_id;
  ASSERT_EQ(changes.size(), 5u);
  EXPECT_EQ(changes[9].bias, 2);
  EXPECT_EQ(changes[9].generated, 2);
  EXPECT_TRUE(changes[9].masked);
  EXPECT_EQ(changes[7].generated, 0);
  EXPECT_EQ(changes[1].generated, -1);
  EXPECT_TRUE(changes[2].masked);
  EXPECT_FALSE(changes[8].masked);
  // More than there is; greedy by each of its names; and what only the host can do.
  const auto next = [](SamplingParams p, int vocab_size = 50) { return SamplingState(&p, 0, std::vector<int32_t>{1}, 1).NextChoice(vocab_size); };
  EXPECT_EQ(next({.temperature = 1, .top_k = 50}).top_k, 0);
  EXPECT_EQ(next({.temperature = 1e-4}).scale, 0);
  EXPECT_EQ(next({.temperature = 1, .top_k = 1}).scale, 0);
  EXPECT_TRUE(next({.num_logprobs = 0}).by_host);
  EXPECT_TRUE(next({.temperature = 1e31}).by_host);
  EXPECT_TRUE(next({.min_tokens = 2, .stop_token_ids = {0, 1}}, 2).by_host);
  EXPECT_FALSE(next({.min_tokens = 2, .stop_token_ids = {0, 1}}, 3).by_host);
}

// The mask comes after biases and penalties, and before temperature and cuts.
TEST(Sampler, GrammarsMaskEverythingElse) {
  const auto tokens = std::make_shared<TokenTrie>(std::vector<absl::string_view>{"[", "]", "1", "[1", "[]", "2]", "", "1]"});
  auto program = CompileJsonSchema(R"({"type":"array","items":{"const":1}})");
  ASSERT_TRUE(program.ok());
  SamplingParams params = {.logit_bias = {{2, 100}}, .stop_token_ids = {6}, .grammar = std::make_shared<Grammar>(*program, tokens)};
  std::vector<float> logits = {0, 9, 9, 0, 0, 9, 9, 9, 9, 9};  // Of more rows than the tokenizer has.
  for (const auto& [id, count] : Histogram(logits, params)) EXPECT_TRUE(id == 0 || id == 3 || id == 4) << id;
  EXPECT_EQ(Histogram(logits, params).size(), 3u);
  params.top_k = 2;
  for (const auto& [id, count] : Histogram(logits, params)) EXPECT_TRUE(id == 0 || id == 3) << id;
  params.top_k = 0;
  params.top_p = 1e-6;
  EXPECT_EQ(Pick(logits, params), 0);
  params.min_tokens = 1;  // The grammar goes first.
  EXPECT_EQ(Pick(logits, params, {0}, {3}), 1);
  EXPECT_NEAR(SampleOnce(logits, {.temperature = 0, .num_logprobs = 0, .grammar = params.grammar}).logprob, -9 - std::log(7.0), 1e-2);
}

TEST(Sampler, StopTokensEndAGrammarOnlyWhereItMayEnd) {
  const auto tokens = std::make_shared<TokenTrie>(std::vector<absl::string_view>{"1", "2", "", "x", "3"});
  auto program = CompileJsonSchema(R"({"type":"integer","minimum":10,"maximum":399})");
  ASSERT_TRUE(program.ok());
  const std::vector<float> logits = {0, 0, 50, 50, 40};
  // A stop token that is a text of its own ends nothing sooner.
  const SamplingParams params = {.temperature = 0, .stop_token_ids = {2, 4}, .grammar = std::make_shared<Grammar>(*program, tokens)};
  EXPECT_EQ(Pick(logits, params), 0);
  EXPECT_EQ(Pick(logits, params, {0}, {0}), 0);
  EXPECT_EQ(Pick(logits, params, {0}, {0, 1}), 2);
  SamplingParams longer = params;
  longer.min_tokens = 3;
  EXPECT_EQ(Pick(logits, longer, {0}, {0, 1}), 0);
  const std::vector<int32_t> answer = {0, 0, 1, 0};
  EXPECT_TRUE(SamplingState(&params, 0, answer, 1).complete());
  EXPECT_FALSE(SamplingState(&params, 0, std::span(answer).first(3), 1).complete());
}

TEST(Sampler, LogprobsAreTheLogSoftmaxOfTheModel) {
  const auto logits = RandomLogits(50000, 11);
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x));
  const SampledToken token = SampleOnce(logits, {.temperature = 0.7, .top_k = 5, .seed = 4, .num_logprobs = 20});
  EXPECT_NEAR(token.logprob, logits[token.token_id] - std::log(sum), 2e-6);
  std::vector<float> sorted = logits;
  std::ranges::sort(sorted, std::greater<>());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(logits[token.top[i].token_id], sorted[i]);
    EXPECT_NEAR(token.top[i].logprob, sorted[i] - std::log(sum), 2e-6);
  }
  EXPECT_TRUE(SampleOnce(logits, {.num_logprobs = 0}).top.empty());
  const SampledToken small = SampleOnce({0.0f, 0.0f}, {.temperature = 0, .num_logprobs = 20});
  ASSERT_EQ(small.top.size(), 2u);  // No more than there are tokens; ties by id.
  EXPECT_EQ(small.top[0].token_id, 0);
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  for (int n : {1, 17, 64, 1000}) {
    for (float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      auto logits = RandomLogits(n, 3);
      logits[n - 1] = bad;
      const SamplingParams params = {.temperature = 0};
      const std::vector<int32_t> tokens = {5};
      const SamplingState state(&params, 0, tokens, 1);
      Sampler sampler(n);
      EXPECT_THAT(sampler.Sample(logits, state),
                  StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("logit of token"), HasSubstr("position 1"))));
    }
  }
}

TEST(Sampler, HugeLogitsStayFinite) {
  const std::vector<float> logits = {3e38f, -3e38f, 0};
  const SamplingParams params = {.temperature = 0.002, .repetition_penalty = 1e300, .num_logprobs = 3};
  const SampledToken token = SampleOnce(logits, params, {0, 1, 2});
  EXPECT_GE(token.token_id, 0);
  EXPECT_EQ(token.top.size(), 3u);
}

TEST(Sampler, StateIsAFunctionOfTheTokens) {
  const SamplingParams params = {.temperature = 0, .repetition_penalty = 1.2, .frequency_penalty = 0.5};
  const auto logits = RandomLogits(64, 21, 0.3f);
  const std::vector<int32_t> prompt = {1, 2, 3};
  SamplingState grown(&params, 0, prompt, 3);
  std::vector<int32_t> tokens = prompt;
  Sampler sampler(64);
  for (int i = 0; i < 40; ++i) {
    const SamplingState replayed(&params, 0, tokens, 3);
    const int32_t token = sampler.Sample(logits, grown)->token_id;
    ASSERT_EQ(sampler.Sample(logits, replayed)->token_id, token) << i;
    grown.Append(token);
    tokens.push_back(token);
    EXPECT_EQ(grown.position(), static_cast<int>(tokens.size()));
  }
}

TEST(LogitKernels, VariantsAgreeBitForBitAndWithLibm) {
  int num_variants = 0;
  const LogitKernels* variants = LogitKernelVariants(&num_variants);
  for (int n : {1, 5, 16, 64, 100, 5000}) {
    const auto x = RandomLogits(n, n, 20);
    const float max = *std::ranges::max_element(x);
    std::vector<float> weights[2], chunk_max[2];
    std::vector<double> sums[2];
    for (int v = 0; v < num_variants; ++v) {
      weights[v].resize(n);
      chunk_max[v].resize(NumLogitChunks(n));
      sums[v].resize(NumLogitChunks(n));
      EXPECT_TRUE(variants[v].scan(x.data(), n, chunk_max[v].data()));
      variants[v].exp_sums(x.data(), n, max, 0.7f, weights[v].data(), sums[v].data());
      EXPECT_EQ(weights[v], weights[0]);
      EXPECT_EQ(sums[v], sums[0]);
      EXPECT_EQ(chunk_max[v], chunk_max[0]);
      EXPECT_EQ(*std::ranges::max_element(chunk_max[v]), max);
    }
    for (int i = 0; i < n; ++i) {
      const double expected = std::exp(static_cast<double>((x[i] - max) * 0.7f));
      EXPECT_NEAR(weights[0][i], expected, 1e-6 * expected + 1.7e-38);
    }
  }
}

TEST(SamplingParams, RefusalsNameFieldValueAndBound) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  struct Case {
    SamplingParams params;
    const char *field, *value, *bound;
  };
  const std::vector<Case> cases = {
      {{.temperature = -0.1}, "temperature", "-0.1", ">= 0"},
      {{.temperature = kNan}, "temperature", "nan", ">= 0"},
      {{.temperature = kInf}, "temperature", "inf", "finite"},
      {{.top_p = 0}, "top_p", "0", "> 0"},
      {{.top_p = 1.5}, "top_p", "1.5", "<= 1"},
      {{.top_p = kNan}, "top_p", "nan", "<= 1"},
      {{.min_p = -0.5}, "min_p", "-0.5", "0 to 1"},
      {{.min_p = kNan}, "min_p", "nan", "0 to 1"},
      {{.repetition_penalty = 0}, "repetition_penalty", "0", "> 0"},
      {{.repetition_penalty = kInf}, "repetition_penalty", "inf", "finite"},
      {{.presence_penalty = 2.5}, "presence_penalty", "2.5", "-2 to 2"},
      {{.frequency_penalty = kNan}, "frequency_penalty", "nan", "-2 to 2"},
      {{.logit_bias = {{100, 1}}}, "logit_bias", "100", "0 to 99"},
      {{.logit_bias = {{-1, 1}}}, "logit_bias", "-1", "0 to 99"},
      {{.logit_bias = {{5, 101}}}, "logit_bias of token 5", "101", "-100 to 100"},
      {{.logit_bias = {{5, kNan}}}, "logit_bias of token 5", "nan", "-100 to 100"},
      {{.num_logprobs = 21}, "num_logprobs", "21", "20"},
      {{.max_tokens = 0}, "max_tokens", "0", ">= 1"},
      {{.max_tokens = 4, .min_tokens = 5}, "min_tokens", "5", "4"},
      {{.min_tokens = -1}, "min_tokens", "-1", "0"},
      {{.stop_token_ids = {100}}, "stop_token_ids", "100", "0 to 99"},
      {{.stop_token_ids = {std::numeric_limits<int32_t>::min()}}, "stop_token_ids", "-2147483648", "0 to 99"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(c.params.Validate(100),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(c.field), HasSubstr(c.value), HasSubstr(c.bound))));
  }
  EXPECT_THAT(SamplingParams().Validate(100), ::baton::testing::IsOk());
}

}  // namespace
}  // namespace baton
