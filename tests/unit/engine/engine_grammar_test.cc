// SPDX-License-Identifier: Apache-2.0
// Constrained answers: valid wherever they end by themselves, and the same however they come about.
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/engine/engine_core.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine/test_worker.h"

namespace baton {
namespace {

using ::baton::testing::Disaggregate;
using ::baton::testing::Heard;
using ::baton::testing::IsOk;
using ::baton::testing::MakeSpec;
using ::baton::testing::RandomTokens;
using ::baton::testing::RunAlone;
using ::baton::testing::StatusIs;
using ::baton::testing::TestWorker;
using ::testing::HasSubstr;

// The tiny models' vocabulary as far as it is bytes.
std::shared_ptr<const TokenTrie> TinyTokens() {
  static std::string bytes(256, '\0');
  std::vector<absl::string_view> views(320);
  for (int i = 0; i < 256; ++i) {
    bytes[i] = static_cast<char>(i);
    views[testing::TinyByteToken(static_cast<unsigned char>(i))] = absl::string_view(bytes).substr(i, 1);
  }
  return std::make_shared<TokenTrie>(views);
}

std::shared_ptr<Grammar> TinyGrammar(absl::string_view schema) {
  auto program = CompileJsonSchema(schema);
  EXPECT_THAT(program.status(), IsOk());
  return std::make_shared<Grammar>(*std::move(program), TinyTokens());
}

constexpr char kObject[] =
    R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99},"b":{"type":"array","items":{"enum":["x","yy",null]},)"
    R"("minItems":3,"maxItems":12}},"required":["a","b"],"additionalProperties":false})";

SequenceSpec Constrained(absl::string_view schema, uint64_t seed, int max_tokens = 200, SamplingParams sampling = {}) {
  sampling.seed = seed;
  sampling.grammar = TinyGrammar(schema);
  sampling.stop_token_ids = {testing::kTinyEos};
  return MakeSpec(RandomTokens(20, seed), max_tokens, sampling);
}

std::string TextOf(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t id : tokens) {
    if (id >= 3 && id < 259) text.push_back(static_cast<char>(id - 3));
  }
  return text;
}

void ExpectWhole(const std::vector<int32_t>& tokens) {
  const auto json = ParseJson(TextOf(tokens));
  ASSERT_THAT(json.status(), IsOk()) << TextOf(tokens);
  EXPECT_TRUE((*json)["a"].is_number_integer());
  EXPECT_GE((*json)["b"].size(), 3u);
}

TEST(EngineGrammar, AnswersAreWholeAndEndByThemselves) {
  const std::vector<SamplingParams> ways = {{.temperature = 0},
                                            {.temperature = 1},
                                            {.temperature = 5, .top_k = 40},
                                            {.top_p = 0.3},
                                            {.min_p = 0.2},
                                            {.repetition_penalty = 1.5, .frequency_penalty = 1},
                                            {.logit_bias = {{50, 100}, {testing::kTinyEos, 100}}},
                                            {.num_logprobs = 5, .min_tokens = 150}};
  for (const SamplingParams& way : ways) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      TestWorker worker(64, {});
      Heard heard;
      ASSERT_THAT(worker.Generate(1, Constrained(kObject, seed, 200, way), &heard), IsOk());
      worker.RunUntilIdle();
      ASSERT_EQ(heard.finish[0], FinishReason::kComplete) << TextOf(heard.tokens[0]);
      EXPECT_EQ(TextOf(heard.tokens[0]).back(), '}');
      EXPECT_EQ(heard.events.back().stop_token_id, -1);
      ExpectWhole(heard.tokens[0]);
    }
  }
}

// What may go on ends by a stop token, and only where it may end.
TEST(EngineGrammar, BareNumbersEndByAStopToken) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SequenceSpec spec = Constrained(R"({"type":"integer","minimum":10,"maximum":999999})", seed);
    spec.sampling.logit_bias = {{testing::kTinyEos, 30}};
    const auto tokens = RunAlone(spec).at(0);
    const std::string text = TextOf(tokens);
    EXPECT_GE(text.size(), 2u);
    EXPECT_TRUE(text.size() == 6 || tokens.back() == testing::kTinyEos) << text;
    EXPECT_GE(std::stoi(text), 10);
  }
}

TEST(EngineGrammar, LengthCutsAnywhere) {
  TestWorker worker(64, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, Constrained(kObject, 1, 5), &heard), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(heard.finish[0], FinishReason::kLength);
  EXPECT_EQ(heard.tokens[0].size(), 5u);
}

TEST(EngineGrammar, ChoicesForkAndPrefillMayBeElsewhere) {
  SequenceSpec spec = Constrained(kObject, 7);
  spec.num_choices = 5;
  const auto expected = RunAlone(spec);
  EXPECT_EQ(expected.size(), 5u);
  for (const auto& [choice, tokens] : expected) ExpectWhole(tokens);
  EXPECT_NE(expected.at(0), expected.at(1));
  TestWorker prefill(16, {.max_running = 0}), decode(32, {});
  Heard heard;
  ASSERT_THAT(Disaggregate(prefill, decode, 1, spec, &heard), IsOk());
  decode.RunUntilIdle();
  EXPECT_EQ(heard.tokens, expected);
}

// The state is the tokens': after every token another worker goes on with the same text.
TEST(EngineGrammar, RecoveryGoesOnTheSame) {
  const SequenceSpec spec = Constrained(kObject, 11);
  const auto expected = RunAlone(spec).at(0);
  for (size_t cut = 0; cut < expected.size(); ++cut) {
    SequenceSpec rest = spec;
    rest.tokens.insert(rest.tokens.end(), expected.begin(), expected.begin() + static_cast<ptrdiff_t>(cut));
    rest.sampling.grammar = TinyGrammar(kObject);
    EXPECT_EQ(RunAlone(rest).at(0), std::vector<int32_t>(expected.begin() + static_cast<ptrdiff_t>(cut), expected.end())) << cut;
  }
}

TEST(EngineGrammar, SurvivesPreemptionBesideOthers) {
  constexpr char kLong[] = R"({"type":"array","items":{"type":"string","pattern":"^[a-z]{20,30}$"},"minItems":8,"maxItems":8})";
  TestWorker worker(28, {});
  std::vector<SequenceSpec> specs;
  for (uint64_t i = 0; i < 3; ++i) specs.push_back(Constrained(kLong, i, 400));
  specs[2].sampling.grammar = nullptr;
  std::vector<Heard> heard(3);
  for (size_t i = 0; i < 3; ++i) ASSERT_THAT(worker.Generate(i, specs[i], &heard[i]), IsOk());
  worker.RunUntilIdle();
  EXPECT_GT(worker.core().stats().preemptions, 0u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(heard[i].tokens, RunAlone(specs[i])) << i;
  const auto first = ParseJson(TextOf(heard[0].tokens.at(0)));
  ASSERT_THAT(first.status(), IsOk());
  EXPECT_EQ(first->size(), 8u);
}

// An error rather than a text that is not what was asked for.
TEST(EngineGrammar, TokensOutsideTheGrammarAreAnError) {
  SequenceSpec spec = Constrained(kObject, 1);
  spec.tokens.push_back(testing::TinyByteToken('!'));  // As if it had been emitted before a recovery.
  TestWorker worker(64, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, spec, &heard), IsOk());
  worker.RunUntilIdle();
  ASSERT_TRUE(heard.failed.has_value());
  EXPECT_THAT(*heard.failed, StatusIs(absl::StatusCode::kInternal, HasSubstr("the answer so far is not one of its grammar")));
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineGrammar, AVocabularyThatCannotSayItIsAnError) {
  auto program = CompileJsonSchema(R"({"const":"b"})");
  SequenceSpec spec = MakeSpec(RandomTokens(20, 1), 20);
  std::vector<absl::string_view> tokens(320);
  tokens[5] = "\"";
  spec.sampling.grammar = std::make_shared<Grammar>(*program, std::make_shared<TokenTrie>(tokens));
  TestWorker worker(64, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, spec, &heard), IsOk());
  worker.RunUntilIdle();
  ASSERT_TRUE(heard.failed.has_value());
  EXPECT_THAT(*heard.failed, StatusIs(absl::StatusCode::kInternal, HasSubstr("the vocabulary has none")));
}

TEST(EngineGrammar, StopTokensThatAreAllThatMayComeAreTheClientsError) {
  SequenceSpec spec = Constrained(R"({"const":"x"})", 3);
  spec.sampling.stop_token_ids.clear();
  for (int32_t id = 0; id < 300; ++id) spec.sampling.stop_token_ids.push_back(id);
  TestWorker worker(64, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, spec, &heard), IsOk());
  worker.RunUntilIdle();
  ASSERT_TRUE(heard.failed.has_value());
  EXPECT_THAT(*heard.failed, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stop_token_ids")));
}

TEST(EngineGrammar, LogprobsAreTheModelsOwn) {
  SequenceSpec spec = Constrained(kObject, 3, 4);
  spec.sampling.num_logprobs = 3;
  TestWorker worker(64, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, spec, &heard), IsOk());
  worker.RunUntilIdle();
  SequenceSpec free = spec;
  free.sampling.grammar = nullptr;
  Heard unconstrained;
  ASSERT_THAT(worker.Generate(2, free, &unconstrained), IsOk());
  worker.RunUntilIdle();
  ASSERT_EQ(heard.events[0].token_id, testing::TinyByteToken('{'));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(heard.events[0].top[i].token_id, unconstrained.events[0].top[i].token_id);
}

}  // namespace
}  // namespace baton
