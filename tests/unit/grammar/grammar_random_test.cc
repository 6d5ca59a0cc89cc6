// SPDX-License-Identifier: Apache-2.0
// Random walks through grammars against a plain validator, and masks against trying every token.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/grammar/json_schema.h"
#include "common/text/tokenizer_json.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/grammar/grammar_test_support.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using testing::Accepts;
using testing::GrammarOf;
using testing::RandomText;

// A random schema of the supported keywords that has texts.
class SchemaMaker {
 public:
  explicit SchemaMaker(uint64_t seed) : rng_(seed) {}

  Json Make() {
    Json schema = One(3);
    schema["$defs"] = {{"leaf", One(0)}, {"tree", {{"type", "array"}, {"items", {{"$ref", "#/$defs/tree"}}}, {"maxItems", 3}}}};
    return schema;
  }

 private:
  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }

  Json One(int depth) {
    switch (Below(depth > 0 ? 12 : 6)) {
      case 0: return String();
      case 1: return Number();
      case 2: return {{"type", "boolean"}};
      case 3: return {{"enum", {"alpha", "alp", 12, nullptr, "β"}}};
      case 4: return {{"type", {"null", "integer"}}, {"minimum", Below(20) - 10}};
      case 5: return {{"const", "a \"quoted\"\n text"}};
      case 6: return {{"$ref", Below(2) == 0 ? "#/$defs/leaf" : "#/$defs/tree"}};
      case 7: return {{"anyOf", {One(depth - 1), One(depth - 1)}}};
      case 8: return Array(depth);
      case 9: return {{"allOf", {Object(depth - 1), {{"properties", {{"a", One(depth - 1)}}}, {"required", {"b"}}}}}};
      default: return Object(depth);
    }
  }
  Json String() {
    Json schema = {{"type", "string"}};
    const char* const patterns[] = {"^[a-f]{2,5}$", "^(ab|a)*c$", "x", "^\\d+(\\.\\d+)?$", "^[^a]b?$"};
    if (Below(2) == 0) schema["pattern"] = patterns[Below(5)];
    if (schema.contains("pattern") || Below(2) == 0) return schema;
    const int least = Below(4);
    schema["minLength"] = least;
    schema["maxLength"] = least + Below(6);
    return schema;
  }
  Json Number() {
    Json schema = {{"type", Below(2) == 0 ? "integer" : "number"}};
    const double low = Below(2) == 0 ? Below(2000) - 1000 : (Below(2000) - 1000) / 16.0;
    if (Below(2) == 0) schema[Below(2) == 0 ? "minimum" : "exclusiveMinimum"] = low;
    if (Below(2) == 0) schema[Below(2) == 0 ? "maximum" : "exclusiveMaximum"] = low + 2 + Below(300);
    return schema;
  }
  Json Array(int depth) {
    Json schema = {{"type", "array"}, {"items", One(depth - 1)}};
    const int least = Below(3);
    if (Below(2) == 0) schema["minItems"] = least;
    if (Below(2) == 0) schema["maxItems"] = least + Below(3);
    if (Below(4) == 0) schema["prefixItems"] = {One(depth - 1), One(depth - 1)};
    return schema;
  }
  Json Object(int depth) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}};
    for (const char* name : {"a", "b", "b c", "ä", "q\""}) {
      if (Below(3) > 0) continue;
      schema["properties"][name] = One(depth - 1);
      if (Below(2) == 0) schema["required"].push_back(name);
    }
    if (Below(2) == 0) schema["additionalProperties"] = Below(2) == 0 ? Json(false) : Json{{"type", "integer"}};
    return schema;
  }

  std::mt19937_64 rng_;
};

// What is written is valid; what is nearly that and accepted is valid as well; and it is accepted as a JSON library writes it.
TEST(GrammarRandom, TextsAreValidAndOthersAreNot) {
  int compiled = 0, accepted_mutants = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Json schema = SchemaMaker(seed).Make();
    const auto program = CompileJsonSchema(schema.dump());
    if (!program.ok()) continue;  // Two patterns for one thing, or nothing can be valid.
    ++compiled;
    Grammar grammar(*program, testing::ByteTokens());
    std::mt19937_64 rng(seed + 1000);
    for (int round = 0; round < 6; ++round) {
      const std::string text = RandomText(grammar, rng, 1 + rng() % 60);
      const auto value = ParseOrderedJson(text, 200);
      ASSERT_TRUE(value.ok()) << "seed " << seed << ": " << schema << ": " << text << ": " << value.status();
      ASSERT_TRUE(testing::IsValid(schema, *value, schema)) << "seed " << seed << ": " << schema << ": " << text;
      const std::string written = DumpJson(*value);
      if (written.find_first_of("eE.\\") == std::string::npos && written.size() <= text.size()) {
        EXPECT_TRUE(Accepts(grammar, written)) << "seed " << seed << ": " << schema << ": " << written;
      }
      for (int i = 0; i < 20; ++i) {
        std::string mutant = text;
        const size_t at = rng() % mutant.size();
        const absl::string_view bytes = "\"{}[],: 01-.eabx\\u\xC3";
        const char byte = bytes[rng() % bytes.size()];
        if (rng() % 3 == 0) {
          mutant.erase(at, 1);
        } else if (rng() % 2 == 0) {
          mutant[at] = byte;
        } else {
          mutant.insert(at, 1, byte);
        }
        if (!Accepts(grammar, mutant)) continue;
        ++accepted_mutants;
        const auto other = ParseOrderedJson(mutant, 200);
        ASSERT_TRUE(other.ok()) << "seed " << seed << ": " << schema << ": " << mutant;
        ASSERT_TRUE(testing::IsValid(schema, *other, schema)) << "seed " << seed << ": " << schema << ": " << mutant;
      }
    }
  }
  EXPECT_GT(compiled, 200);
  EXPECT_GT(accepted_mutants, 1000);
}

std::shared_ptr<const TokenTrie> TrieOf(const Tokenizer& tokenizer) {
  std::vector<absl::string_view> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) bytes[id] = tokenizer.TokenBytes(id);
  }
  return std::make_shared<TokenTrie>(bytes);
}

// Every token of the vocabulary by itself, at states on the way of random answers.
void ExpectMasksAreWhatTokensDo(const Tokenizer& tokenizer, int num_schemas, int num_tokens) {
  const auto tokens = TrieOf(tokenizer);
  for (int seed = 0; seed < num_schemas; ++seed) {
    const Json schema = seed == 0 ? Json(true) : SchemaMaker(seed).Make();
    const auto program = CompileJsonSchema(schema.dump());
    if (!program.ok()) continue;
    const auto grammar = std::make_shared<Grammar>(*program, tokens);
    Grammar other(*program, tokens);  // With states of its own.
    std::mt19937_64 rng(seed);
    Grammar::StateRef state = grammar->Start();
    std::string text;
    for (int i = 0; i < num_tokens && state != nullptr && !state->complete(); ++i) {
      const auto mask = grammar->Mask(state);
      const Grammar::StateRef from = other.Advance(other.Start(), text);
      ASSERT_NE(from, nullptr);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < tokens->vocab_size(); ++id) {
        const absl::string_view bytes = tokens->BytesOf(id);
        const bool can = !bytes.empty() && other.Advance(from, bytes) != nullptr;
        ASSERT_EQ(mask->allows(id), can) << "token " << id << " after " << text << " in " << schema;
        if (can) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      const int32_t id = allowed[rng() % allowed.size()];
      text += std::string(tokens->BytesOf(id));
      state = grammar->Advance(state, tokens->BytesOf(id));
    }
  }
}

TEST(GrammarMasks, OfATinyByteLevelVocabulary) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, TokenizerFromJson(testing::TinyByteLevelJson().dump()));
  ExpectMasksAreWhatTokensDo(*tokenizer, 60, 30);
  const auto tokens = TrieOf(*tokenizer);
  EXPECT_TRUE(tokens->BytesOf(300).empty()) << "special tokens are no part of an answer";
}

TEST(GrammarMasks, OfATinySentencePieceVocabulary) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, TokenizerFromJson(testing::TinySpmJson().dump()));
  ExpectMasksAreWhatTokensDo(*tokenizer, 60, 30);
}

class PublishedVocabulary : public ::testing::TestWithParam<const char*> {};
TEST_P(PublishedVocabulary, Masks) {
  if (!testing::SharedExists("tokenizers/expected.json.xz")) GTEST_SKIP() << "no published tokenizers beside the tree";
  ExpectMasksAreWhatTokensDo(*testing::SharedTokenizer(GetParam()), 6, 6);
}
INSTANTIATE_TEST_SUITE_P(Models, PublishedVocabulary, ::testing::Values("qwen3", "mistral_v1"));

// A detokenizer that drops the spaces of the first token must not change what was written.
TEST(GrammarMasks, FirstTokensWithSpaces) {
  auto program = CompileJsonSchema(R"({"enum":["a b"]})");
  ASSERT_TRUE(program.ok());
  const auto tokens = std::make_shared<TokenTrie>(std::vector<absl::string_view>{"\"", "\"a ", "a ", "b", "\"a", " "});
  for (const bool loses : {false, true}) {
    Grammar grammar(*program, tokens, loses);
    const auto first = grammar.Mask(grammar.Start());
    EXPECT_EQ(first->allows(1), !loses);
    EXPECT_TRUE(first->allows(0) && first->allows(4));
    EXPECT_TRUE(grammar.Mask(grammar.Advance(grammar.Start(), "\""))->allows(2));
  }
}

// A counted string costs no mask per character, and what was worked out is bounded.
TEST(GrammarMasks, AreSharedAndBounded) {
  const auto grammar = GrammarOf(R"({"type":"string","minLength":3,"maxLength":100000})");
  Grammar::StateRef state = grammar->Advance(grammar->Start(), "\"");
  for (int i = 0; i < 20000; ++i) {
    EXPECT_TRUE(grammar->Mask(state)->allows('x'));
    state = grammar->Advance(state, "x");
    ASSERT_NE(state, nullptr);
  }
  EXPECT_LT(grammar->num_masks(), 10u);
  EXPECT_LE(grammar->num_states(), Grammar::kMaxStates);
}

TEST(GrammarMasks, LivesOnWhenItsTablesAreMadeAnew) {
  const auto grammar = GrammarOf(R"({"type":"array","items":{"type":"string","maxLength":1000},"maxItems":3})");
  const Grammar::StateRef kept = grammar->Advance(grammar->Start(), "[\"ab");
  Grammar::StateRef state = kept;
  for (int i = 0; i < 990; ++i) {
    for (const char* text : {"é", "\\u00e9"}) ASSERT_NE(grammar->Advance(state, text), nullptr);
    grammar->Mask(state);
    state = grammar->Advance(state, "€");
    ASSERT_NE(state, nullptr);
  }
  EXPECT_TRUE(grammar->Mask(kept)->allows('"'));
  EXPECT_TRUE(grammar->Advance(kept, "c\"]")->complete());
}

TEST(GrammarState, FollowsTokensAndFailsForGood) {
  const auto grammar = GrammarOf(R"({"const":[1]})");
  GrammarState state(grammar);
  for (const char c : absl::string_view("[1")) state.Append(c);
  EXPECT_FALSE(state.accepting());
  GrammarState copy = state;
  state.Append(']');
  EXPECT_TRUE(state.complete());
  copy.Append('2');
  EXPECT_TRUE(copy.failed());
  copy.Append(']');
  EXPECT_TRUE(copy.failed());
  EXPECT_EQ(copy.Mask(), nullptr);
  EXPECT_TRUE(state.complete());
}

}  // namespace
}  // namespace baton
