// SPDX-License-Identifier: Apache-2.0
// Whoever sends a schema makes others wait for no longer than the bounds on work allow.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/grammar/grammar_test_support.h"

namespace baton {
namespace {

using testing::GrammarOf;
using testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string AnyOf(int n, const std::string& schema) {
  std::string all = R"({"anyOf":[)";
  for (int i = 0; i < n; ++i) absl::StrAppend(&all, i > 0 ? "," : "", schema);
  return all + "]}";
}

// Numbers from `first` on.
std::string Values(int first, int n) {
  std::string all = R"({"enum":[-1)";
  for (int i = 0; i < n; ++i) absl::StrAppend(&all, ",", first + i);
  return all + "]}";
}

TEST(GrammarCost, TheAutomataOfASchemaShareABudget) {
  EXPECT_TRUE(CompileJsonSchema(R"({"type":"string","pattern":"^(a?){300}$"})").ok());
  const std::string kOver[] = {
      AnyOf(8, R"({"type":"string","pattern":"^(a?){990}$"})"),
      AnyOf(2000, R"({"type":"string","pattern":"^(a?){30}$"})"),
  };
  for (const std::string& schema : kOver) {
    EXPECT_THAT(CompileJsonSchema(schema).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AnyOf(HasSubstr(absl::StrCat("more than ", CompileBudget::kSteps, " steps")), HasSubstr("too large"))))
        << schema.substr(0, 100);
  }
  EXPECT_THAT(CompileJsonSchema(AnyOf(8, R"({"type":"string","pattern":"^(a?){990}$"})")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat("more than ", CompileBudget::kSteps, " steps"))));
}

TEST(GrammarCost, MergingLongListsIsRefused) {
  EXPECT_THAT(CompileJsonSchema(absl::StrCat(R"({"allOf":[)", Values(0, 12000), ",", Values(5, 12000), "]}")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("\"enum\" of 24002 entries"), HasSubstr("too much"))));
}

// Alternatives that never part are followed all at once. Such an answer ends with an error instead of holding up the engine.
TEST(GrammarCost, MasksHaveABoundOfWork) {
  std::string schema = R"({"anyOf":[{"type":"null"})";
  for (int i = 1; i < 200; ++i) absl::StrAppend(&schema, R"(,{"type":"string","minLength":)", i, "}");
  const auto grammar = GrammarOf(schema + "]}");
  Grammar::StateRef state = grammar->Advance(grammar->Start(), "\"");
  int masks = 0;
  for (; masks < 500 && grammar->Mask(state) != nullptr; ++masks) {
    state = grammar->Advance(state, "x");
    ASSERT_NE(state, nullptr);
  }
  EXPECT_LT(masks, 500);
  // Where it is cheap there are masks again.
  EXPECT_NE(grammar->Mask(grammar->Advance(grammar->Start(), "n")), nullptr);
}

// A list of calls of one of `n` tools.
std::string Tools(int n) {
  std::string schema = R"({"type":"array","items":{"anyOf":[{"type":"null"})";
  for (int i = 0; i < n; ++i) {
    absl::StrAppend(&schema, R"(,{"type":"object","properties":{"name":{"const":"tool_)", i,
                    R"("},"arguments":{"type":"object","properties":{"a":{"type":"string","maxLength":50}},"additionalProperties":false}},)"
                    R"("required":["name","arguments"],"additionalProperties":false})");
  }
  return schema + "]}}";
}

TEST(GrammarCost, ManyToolsAreNoTrouble) {
  for (const int n : {128, 160}) {
    const auto grammar = GrammarOf(Tools(n));
    for (int i = 0; i < n; ++i) {
      const std::string call = absl::StrCat(R"([{"name": "tool_)", i, R"(", "arguments": {"a": "some text for this tool"}}])");
      Grammar::StateRef state = grammar->Start();
      for (const char c : call) {
        const auto mask = grammar->Mask(state);
        ASSERT_NE(mask, nullptr) << i;
        ASSERT_TRUE(mask->allows(static_cast<unsigned char>(c))) << i;
        state = grammar->Advance(state, std::string(1, c));
      }
      EXPECT_TRUE(state->complete());
    }
  }
}

// They would be left out without a word: the last tools could never be called.
TEST(GrammarCost, MoreAlternativesThanAreFollowedAreRefused) {
  EXPECT_THAT(CompileJsonSchema(Tools(300)), StatusIs(absl::StatusCode::kInvalidArgument,
                                                      AllOf(HasSubstr("more than 512 alternatives begin alike"), HasSubstr("#"))));
  // Values that differ at once, or are one automaton, are few alternatives.
  EXPECT_TRUE(CompileJsonSchema(Values(0, 2000)).ok());
}

}  // namespace
}  // namespace baton
