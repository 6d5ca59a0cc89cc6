// SPDX-License-Identifier: Apache-2.0
// B37: the log-probability of a prompt's token is that which it would have had as the answer to what is before it.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/test_worker.h"

namespace baton::testing {
namespace {

// What the core says of a prompt, and in which parts.
struct Scores {
  std::vector<SampledToken> tokens;  // Of prompt tokens from the second on.
  std::vector<int> firsts;
  bool before_tokens = true;
};

SequenceSink WithScores(Heard* heard, Scores* scores) {
  SequenceSink sink = heard->Sink();
  sink.on_prompt_logprobs = [heard, scores](int first, const std::vector<SampledToken>& tokens) {
    EXPECT_EQ(first, static_cast<int>(scores->tokens.size()) + 1);
    scores->firsts.push_back(first);
    scores->before_tokens = scores->before_tokens && heard->events.empty() && heard->num_prefilled == 0;
    scores->tokens.insert(scores->tokens.end(), tokens.begin(), tokens.end());
  };
  return sink;
}

void Submit(TestWorker& worker, SequenceId id, SequenceSpec spec, Heard* heard, Scores* scores) {
  ASSERT_OK_AND_ASSIGN(const Landing landing, worker.core().ReserveLanding(id, std::move(spec), WithScores(heard, scores)));
  EXPECT_EQ(landing.num_cached_tokens, 0);
  ASSERT_THAT(worker.core().PrefillLocally(id), IsOk());
}

// As the answer to `prompt`, forced.
TokenEvent AnswerWith(int32_t token, std::vector<int32_t> prompt, const Model& model) {
  TestWorker worker(16, {}, model);
  SamplingParams sampling{.temperature = 0, .logit_bias = {{token, 100.0}}, .num_logprobs = 2};
  Heard heard;
  EXPECT_THAT(worker.Generate(1, MakeSpec(std::move(prompt), 1, sampling), &heard), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(heard.events.size(), 1u);
  EXPECT_EQ(heard.events.at(0).token_id, token);
  return heard.events.at(0);
}

class PromptLogprobsTest : public ::testing::TestWithParam<bool> {
 protected:
  const Model& model() const { return GetParam() ? RandomCpuModel() : RandomModel(); }
};

TEST_P(PromptLogprobsTest, AreThoseOfAnswersBitForBit) {
  const std::vector<int32_t> prompt = RandomTokens(75, 3);
  for (const bool decode_first : {true, false}) {
    TestWorker worker(16, {.decode_first = decode_first}, model());
    SequenceSpec spec = MakeSpec(prompt, 2);
    spec.prompt_logprobs = 2;
    Heard heard;
    Scores scores;
    Submit(worker, 1, spec, &heard, &scores);
    worker.RunUntilIdle();
    ASSERT_EQ(scores.tokens.size(), 74u);
    EXPECT_GT(scores.firsts.size(), 1u);  // In parts: never the whole prompt's logits.
    EXPECT_TRUE(scores.before_tokens);
    EXPECT_EQ(heard.tokens[0], RunAlone(MakeSpec(prompt, 2), model())[0]);
    for (const int i : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 74}) {
      const TokenEvent answer = AnswerWith(prompt[static_cast<size_t>(i)], {prompt.begin(), prompt.begin() + i}, model());
      const SampledToken& scored = scores.tokens[static_cast<size_t>(i) - 1];
      EXPECT_EQ(scored.token_id, prompt[static_cast<size_t>(i)]) << i;
      EXPECT_EQ(scored.logprob, answer.logprob) << i;
      ASSERT_EQ(scored.top.size(), 2u) << i;
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(scored.top[k].token_id, answer.top[k].token_id) << i;
        EXPECT_EQ(scored.top[k].logprob, answer.top[k].logprob) << i;
      }
    }
    EXPECT_TRUE(worker.AtBaseline());
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PromptLogprobsTest, ::testing::Bool(), [](const auto& info) { return std::string(info.param ? "cpu" : "reference"); });

TEST(PromptLogprobs, WhatIsCachedIsComputedAgain) {
  TestWorker worker(32, {});
  const std::vector<int32_t> prompt = RandomTokens(50, 4);
  Scores before, after;
  for (Scores* scores : {&before, &after}) {
    SequenceSpec spec = MakeSpec(prompt, 1);
    spec.prompt_logprobs = 0;
    Heard heard;
    Submit(worker, scores == &before ? 1 : 2, spec, &heard, scores);
    worker.RunUntilIdle();
  }
  ASSERT_EQ(after.tokens.size(), 49u);
  for (size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(after.tokens[i].logprob, before.tokens[i].logprob) << i;
    EXPECT_TRUE(after.tokens[i].top.empty());
  }
  // It serves others, who want none.
  SequenceSpec spec = MakeSpec(prompt, 1);
  Heard heard;
  ASSERT_OK_AND_ASSIGN(const Landing landing, worker.core().ReserveLanding(3, spec, heard.Sink()));
  EXPECT_EQ(landing.num_cached_tokens, 48);
  worker.core().Cancel(3);
}

TEST(PromptLogprobs, SeveralAtOnceAndBesideOthersAreTheSame) {
  TestWorker worker(64, {.max_step_rows = 64, .max_running = 4});
  std::vector<Heard> heard(5);
  std::vector<Scores> scores(5);
  for (uint64_t i = 0; i < 5; ++i) {
    SequenceSpec spec = MakeSpec(RandomTokens(40 + static_cast<int>(i), i), 5);
    if (i != 2) spec.prompt_logprobs = 1;
    ASSERT_OK_AND_ASSIGN(const Landing landing, worker.core().ReserveLanding(i + 1, spec, WithScores(&heard[i], &scores[i])));
    ASSERT_THAT(worker.core().PrefillLocally(i + 1), IsOk());
  }
  worker.RunUntilIdle();
  for (uint64_t i = 0; i < 5; ++i) {
    SequenceSpec spec = MakeSpec(RandomTokens(40 + static_cast<int>(i), i), 5);
    EXPECT_EQ(heard[i].tokens[0], RunAlone(spec)[0]) << i;
    ASSERT_EQ(scores[i].tokens.size(), i == 2 ? 0u : 39u + i) << i;
    if (i == 2) continue;
    TestWorker alone(16, {});
    spec.prompt_logprobs = 1;
    Heard heard_alone;
    Scores scores_alone;
    Submit(alone, 1, spec, &heard_alone, &scores_alone);
    alone.RunUntilIdle();
    for (size_t k = 0; k < scores[i].tokens.size(); ++k) EXPECT_EQ(scores[i].tokens[k].logprob, scores_alone.tokens[k].logprob) << i << " " << k;
  }
}

TEST(PromptLogprobs, AShortPromptHasNoneAndABadNumberIsRefused) {
  TestWorker worker(16, {});
  SequenceSpec spec = MakeSpec({5}, 1);
  spec.prompt_logprobs = 3;
  Heard heard;
  Scores scores;
  Submit(worker, 1, spec, &heard, &scores);
  worker.RunUntilIdle();
  EXPECT_TRUE(heard.Ended(1));
  EXPECT_TRUE(scores.tokens.empty());
  spec.prompt_logprobs = kMaxLogprobs + 1;
  EXPECT_THAT(worker.core().ReserveLanding(2, spec, heard.Sink()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("prompt_logprobs is 21; it must be from -1 to 20")));
}

}  // namespace
}  // namespace baton::testing
