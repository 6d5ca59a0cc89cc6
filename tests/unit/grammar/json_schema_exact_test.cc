// SPDX-License-Identifier: Apache-2.0
// What was once written though no validator would take it.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/grammar/json_schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/grammar/grammar_test_support.h"

namespace baton {
namespace {

using testing::Accepts;
using testing::GrammarOf;
using testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  std::string schema;
  std::vector<std::string> yes, no;
};

void Expect(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const auto grammar = GrammarOf(c.schema);
    for (const std::string& text : c.yes) EXPECT_TRUE(Accepts(*grammar, text)) << c.schema << " must accept " << text;
    for (const std::string& text : c.no) EXPECT_FALSE(Accepts(*grammar, text)) << c.schema << " must not accept " << text;
  }
}

Case PatternCase(const std::string& pattern, const std::vector<std::string>& yes, const std::vector<std::string>& no) {
  Case result{DumpJson(nlohmann::json{{"type", "string"}, {"pattern", pattern}}), {}, {}};
  for (const std::string& text : yes) result.yes.push_back(DumpJson(nlohmann::json(text)));
  for (const std::string& text : no) result.no.push_back(DumpJson(nlohmann::json(text)));
  return result;
}

// ECMA-262 and Python's re differ in what is a blank, a letter, a digit: what either would not match is not written, in a
// class, out of it, and on both sides of a complement.
TEST(JsonSchemaExact, CharacterEscapesAreTakenOnTheSafeSide) {
  const std::string blank = "\xC2\xA0", wide = "\xE3\x80\x80", separator = "\x1C", umlaut = "ä", arabic_three = "٣";
  Expect({
      PatternCase("^[^\\s]$", {"a", umlaut, arabic_three, "😀"}, {" ", "\n", blank, wide, separator, "\u0085", "\u2028", "\uFEFF"}),
      PatternCase("^\\S$", {"a", umlaut}, {" ", blank, wide, separator}),
      PatternCase("^[\\s]$", {" ", "\n"}, {"a", blank, separator}),
      PatternCase("^[^\\S]$", {" ", "\t"}, {"a", blank, wide, separator}),
      PatternCase("^[\\S ]$", {"a", " "}, {blank, "\n"}),
      PatternCase("^[^\\sa]$", {"b"}, {"a", blank}),
      PatternCase("^\\d$", {"3"}, {arabic_three}),
      PatternCase("^\\D$", {"a", umlaut, "😀"}, {"3", arabic_three, "𝟗"}),
      PatternCase("^[^\\d]$", {"a", umlaut}, {"3", arabic_three, "９"}),
      PatternCase("^[^\\D]$", {"3"}, {"a", arabic_three}),
      PatternCase("^\\W$", {"-", "€", "…"}, {"a", umlaut, "é", "漢", "²"}),
      PatternCase("^[^\\w]$", {" ", "-"}, {"_", umlaut, "漢"}),
      PatternCase("^[^\\W]$", {"a", "_"}, {"-", umlaut}),
  });
}

// "items" is about the items that the "prefixItems" of its own schema leaves over.
TEST(JsonSchemaExact, ItemsOfOneSchemaHoldForThePrefixOfAnother) {
  Expect({
      {R"({"allOf":[{"prefixItems":[{"enum":["a",1]}]},{"items":{"type":"integer"}}]})", {"[]", "[1]", "[1,2]"}, {R"(["a"])", R"([1,"a"])"}},
      {R"({"type":"array","prefixItems":[true],"allOf":[{"items":{"type":"null"}}]})", {"[null,null]"}, {"[1]"}},
      {R"({"allOf":[{"prefixItems":[{"type":"integer"}],"items":false},{"prefixItems":[true,{"type":"string"}]}]})", {"[]", "[1]"}, {R"([1,"a"])", R"(["a"])"}},
      {R"({"allOf":[{"prefixItems":[{"type":"integer"}],"items":{"type":["null","string"]}},{"prefixItems":[true,{"type":"string"}]}]})",
       {R"([1,"a",null])"}, {"[1,null]", R"([1,"a",1])"}},
      {R"({"type":"array","prefixItems":[],"items":{"type":"null"}})", {"[null]"}, {"[1]"}},
  });
  EXPECT_THAT(CompileJsonSchema(R"({"minItems":1,"allOf":[{"prefixItems":[{"type":"string"}]},{"items":{"type":"integer"}}]})").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing")));
}

TEST(JsonSchemaExact, PatternPropertiesAreNotMergedWithWhatAnotherSchemaSaysOfKeys) {
  const char* const kRefused[] = {
      R"({"patternProperties":{"^x$":{"type":"boolean"}},"additionalProperties":false,"allOf":[{"additionalProperties":false}]})",
      R"({"allOf":[{"additionalProperties":{"type":"null"}},{"patternProperties":{"^x$":true},"additionalProperties":false}]})",
      R"({"patternProperties":{"^x$":{"type":"boolean"}},"additionalProperties":false,"anyOf":[{"properties":{"x":{"type":"integer"}}}]})",
  };
  for (const char* schema : kRefused) {
    EXPECT_THAT(CompileJsonSchema(schema).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("\"patternProperties\""), HasSubstr("of another schema"))))
        << schema;
  }
  // A pattern that looks like an annotation is one all the same.
  EXPECT_THAT(CompileJsonSchema(R"({"type":"object","patternProperties":{"x-a":{"type":"integer"}}})").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"patternProperties\"")));
  Expect({{R"({"patternProperties":{"^x$":{"type":"boolean"}},"additionalProperties":false,"allOf":[{"type":"object","minProperties":1}]})",
           {R"({"x":true})"}, {"{}", R"({"x":1})", R"({"y":true})"}}});
}

// A reader with binary fractions must see on which side of a bound a number is.
TEST(JsonSchemaExact, BoundedNumbersHaveNoMoreDigitsThanADoubleTells) {
  Expect({
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})", {"0.999999999999999", "0.000000000000001", "0.5"},
       {"0.999999999999999999", "0.9999999999999999", "0.0000000000000001"}},
      {R"({"type":"number","exclusiveMinimum":-1})", {"-0.999999999999999", "123456789012345", "12345678901234.5"},
       {"-0.9999999999999999", "1234567890123456", "12345678901234.56"}},
      {R"({"type":"integer","exclusiveMaximum":100000000000000000})", {"999999999999999"}, {"99999999999999999"}},
      {R"({"type":"integer","multipleOf":7})", {"700000000000000"}, {"70000000000000000"}},
  });
  for (const char* schema : {R"({"type":"number","exclusiveMinimum":0.1,"exclusiveMaximum":0.3})", R"({"type":"number","exclusiveMaximum":-0.7})",
                             R"({"type":"number","minimum":1e14,"exclusiveMaximum":100000000000003.3})"}) {
    const auto grammar = GrammarOf(schema);
    const nlohmann::ordered_json parsed = *ParseOrderedJson(schema);
    std::mt19937_64 rng(7);
    for (int i = 0; i < 300; ++i) {
      const std::string text = testing::RandomText(*grammar, rng, 30);
      EXPECT_TRUE(testing::IsValid(parsed, *ParseOrderedJson(text), parsed)) << schema << ": " << text;
    }
  }
}

// What fits two alternatives of oneOf is not valid, so there must be nothing that does.
TEST(JsonSchemaExact, AlternativesOfOneOfMayHaveNothingInCommon) {
  const char* const kRefused[] = {
      R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
      R"({"oneOf":[{"type":"string","maxLength":3},{"type":"string","minLength":2}]})",
      R"({"oneOf":[{"const":1},{"enum":[2,1.0]}]})",
      R"({"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2,"a":1}}]})",
      R"({"oneOf":[{},{"type":"string"}]})",
      R"({"oneOf":[{"type":"null"},{"$ref":"#/$defs/o"}],"$defs":{"o":{"properties":{"a":{"type":"null"}}}}})",
      R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"oneOf":[{"required":["a"]},{"required":["b"]}]})",
      R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}}},{"type":"object","properties":{"k":{"const":"b"}}}]})",
      R"({"oneOf":[{"minimum":3},{"type":"integer","maximum":3}]})",
      R"({"items":{"anyOf":[{"oneOf":[{"type":"string"},{"type":"string"}]}]}})",
  };
  for (const char* schema : kRefused) {
    EXPECT_THAT(CompileJsonSchema(schema).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("alternatives 0 and 1 of \"oneOf\""), HasSubstr("in common"))))
        << schema;
    EXPECT_TRUE(CompileJsonSchema(schema, /*lenient=*/true).ok()) << schema;
  }
  Expect({
      {R"({"oneOf":[{"type":"integer","minimum":4},{"type":"number","maximum":3.5},{"type":["null","string"],"maxLength":2}]})", {"4", "3.5", "3", "null"}, {"3.6"}},
      {R"({"oneOf":[{"const":1},{"enum":[2,3]},{"type":"string","const":"1"}]})", {"1", "3", R"("1")"}, {"4"}},
      {R"({"$defs":{"a":{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"null"}},"required":["k"]},"b":{"type":"object","properties":{"k":{"enum":["b","c"]}}}},)"
       R"("oneOf":[{"$ref":"#/$defs/a"},{"allOf":[{"$ref":"#/$defs/b"}]},{"type":"null"}]})",
       {R"({"k":"a","x":null})", R"({"k":"c"})", "null"}, {R"({"k":"d"})"}},
      {R"({"oneOf":[{"type":"object","properties":{"a":{"type":"null"}},"required":["a"],"additionalProperties":false},)"
       R"({"type":"object","properties":{"b":{"type":"null"}},"required":["b"],"additionalProperties":false}]})",
       {R"({"a":null})", R"({"b":null})"}, {R"({"a":null,"b":null})", "{}"}},
      {R"({"oneOf":[{"anyOf":[{"type":"string"},{"type":"null"}]},{"anyOf":[{"type":"integer"},{"type":"boolean"}]}]})", {R"("a")", "1"}, {"1.5"}},
      // Without "type" an alternative is of the type that its keywords are about, also beside a schema of more types.
      {R"({"type":["object","null"],"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]})",
       {R"({"k":1})", R"({"k":2})"}, {"null", R"({"k":3})"}},
  });
}

TEST(JsonSchemaExact, LenientTuplesOfOlderDraftsAreTuples) {
  EXPECT_THAT(CompileJsonSchema(R"({"type":"array","items":[{"type":"integer"}]})").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("an array in \"items\"")));
  const auto grammar = GrammarOf(R"({"type":"array","items":[{"type":"integer"},{"type":"string"}],"additionalItems":false})", /*lenient=*/true);
  EXPECT_TRUE(Accepts(*grammar, R"([1,"a"])"));
  EXPECT_FALSE(Accepts(*grammar, R"(["a"])"));
}

TEST(JsonSchemaExact, ErrorsQuoteTheBeginningOfALongValue) {
  const std::string much(100000, 'a');
  const std::string kLong[] = {
      absl::StrCat(R"({"type":"string","pattern":"^()", much, R"($"})"),    absl::StrCat(R"({"type":")", much, R"("})"),
      absl::StrCat(R"({"$ref":"#/)", much, R"("})"),                           absl::StrCat(R"({")", much, R"(":1})"),
      absl::StrCat(R"({"type":"string","format":")", much, R"("})"),        absl::StrCat(R"({"properties":{")", much, R"(":{"type":1}}})"),
  };
  for (const std::string& schema : kLong) {
    const absl::Status status = CompileJsonSchema(schema).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("aaa..."))) << schema.substr(0, 40);
    EXPECT_LT(status.message().size(), 1000u);
  }
}

}  // namespace
}  // namespace baton
