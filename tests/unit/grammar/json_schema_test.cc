// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/json_schema.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
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
  const char* schema;
  std::vector<std::string> yes, no;
};

// Rejected texts are such that a JSON parser or validator rejects, but for those on lines of their own that say why.
const Case kCases[] = {
    {"true", {"1", "null", "[]", R"({"a":[1,{"b":"c"}]})"}, {"", "nul", "[1,]", R"({"a":1)", "01", "+1", "'a'"}},
    {R"({"type":"object"})", {"{}", R"({"a":1})", R"({"a b":{"c":[true,false,null,-1.5e-3]}})", "{ }", "{\n  \"a\": 1\n}"},
     {"[]", "1", "{,}", R"({"a":1,})", R"({a:1})", R"({"a":01})", "{}x", " {}"}},
    {R"({"type":"string"})", {R"("")", R"("héllo €😀")", R"("\u0041\n\\\"\/")", R"("\ud83d\ude00")"},
     {"\"\n\"", R"("a)", R"("\x")", R"("\ud83d")", R"("\ude00")", R"("\ud83dA")", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xff\"", "\"\xe2\x82\""}},
    {R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("abc")", R"("€€€")", R"("\u0041\ud83d\ude00")"},
     {R"("a")", R"("abcd")", R"("€€€€")", R"("")"}},
    {R"({"type":"string","minLength":3})", {R"("abc")", R"("abcdefgh")"}, {R"("ab")"}},
    {R"({"type":"string","pattern":"^[a-c]+\\d{2}$"})", {R"("a12")", R"("abc99")"}, {R"("a1")", R"("12")", R"("a123")", R"("d12")"}},
    {R"({"type":"string","pattern":"b"})", {R"("b")", R"("abc")", R"("€b\n")"}, {R"("a")", R"("")"}},
    {R"({"type":"string","pattern":"^(yes|no)$|^maybe$"})", {R"("yes")", R"("no")", R"("maybe")"}, {R"("yesno")", R"("ye")"}},
    {R"({"type":"string","pattern":"^[^x\"]*$"})", {R"("")", R"("a€\\\n")"}, {R"("x")", R"("\"")"}},
    {R"({"type":"string","pattern":"^a{2,}?b?$"})", {R"("aa")", R"("aaaab")"}, {R"("ab")", R"("aabb")"}},
    {R"({"type":"string","pattern":"^[a-z]*$","minLength":2,"maxLength":4})", {R"("ab")", R"("abcd")"}, {R"("a")", R"("abcde")"}},
    {R"({"type":"string","pattern":"^\\S+@\\S+\\.\\w{2,3}$"})", {R"("a@b.de")"}, {R"("a b@c.de")", R"("a@b")"}},
    {R"({"type":"string","format":"date"})", {R"("2024-02-28")", R"("1999-12-31")"}, {R"("2024-02-30")", R"("2024-13-01")", R"("24-01-01")"}},
    {R"({"type":"string","format":"date-time"})", {R"("2024-02-28T23:59:59Z")", R"("2024-02-28T23:59:59.5+01:00")"}, {R"("2024-02-28")"}},
    {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
    {R"({"type":"string","format":"email"})", {R"("a.b@example.com")"}, {R"("a.b")", R"("@a.com")"}},
    {R"({"type":"string","format":"ipv4"})", {R"("127.0.0.1")"}, {R"("256.0.0.1")", R"("1.2.3")"}},
    {R"({"type":"integer"})", {"0", "-1", "123456789012345678"}, {"1.5", "01", "1e3", "-", "\"1\""}},
    {R"({"type":"number"})", {"0", "-1", "1.5", "1e3", "-0.25E-2"}, {"01", ".5", "1.", "1e", "NaN", "Infinity"}},
    {R"({"type":"integer","minimum":3,"maximum":120})", {"3", "9", "10", "99", "100", "120"}, {"2", "121", "0", "-5", "1000", "3.0"}},
    {R"({"type":"integer","minimum":-15,"maximum":7})", {"-15", "-9", "-1", "0", "7"}, {"-16", "-20", "8", "10", "-100"}},
    {R"({"type":"integer","exclusiveMinimum":0})", {"1", "10", "99999"}, {"0", "-1", "-0"}},
    {R"({"type":"integer","exclusiveMaximum":-5})", {"-6", "-10", "-555"}, {"-5", "-4", "0", "5"}},
    {R"({"type":"number","minimum":0.5,"exclusiveMaximum":2})", {"0.5", "0.50", "0.51", "1", "1.999"}, {"0.4", "0.49", "2", "2.0", "20", "0"}},
    {R"({"type":"number","minimum":-1.25,"maximum":1e2})", {"-1.25", "-1.2", "0", "100", "100.0", "99.99"}, {"-1.26", "100.1", "-2", "1000"}},
    {R"({"type":"number","multipleOf":0.01})", {"1", "1.25", "-0.5"}, {"1.255"}},
    {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700"}, {"1", "8", "70.0"}},
    {R"({"type":"integer","multipleOf":5,"minimum":10,"maximum":20})", {"10", "15", "20"}, {"5", "12", "25"}},
    {R"({"enum":["red","green",3,null,{"a":[1]}]})", {R"("red")", R"("green")", "3", "null", R"({"a":[1]})"}, {R"("blue")", R"("re")", "33", "{}"}},
    {R"({"type":"string","enum":["a","ab",1]})", {R"("a")", R"("ab")"}, {"1", R"("abc")"}},
    {R"({"const":"x\"y\n"})", {R"("x\"y\n")"}, {R"("x")"}},
    {R"({"type":["string","null"]})", {R"("a")", "null"}, {"1", "nul"}},
    {R"({"type":"boolean"})", {"true", "false"}, {"null", "tru", "1"}},
    {R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]", "[\n1\n]"}, {"[1,]", "[\"a\"]", "[,1]", "1", "[1 2]"}},
    {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1,2,3]"}, {"[1]", "[]", "[1,2,3,4]"}},
    {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {R"({"type":"array","items":{"type":"null"},"maxItems":1})", {"[]", "[null]"}, {"[null,null]", "[null,"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})", {"[1]", R"([1,"a"])"},
     {"[]", R"(["a"])", R"([1,"a",2])"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"boolean"},"minItems":2,"maxItems":3})",
     {"[1,true]", "[1,true,false]"}, {"[1]", "[1,2]", "[1,true,false,true]"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false})",
     {R"({"a":1,"b":"x"})", "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"}, {R"({"a":1})", "{}", R"({"a":1,"b":"x","c":2})", R"({"a":"1","b":"x"})",
     // Valid, and not written: out of order.
     R"({"b":"x","a":1})"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]})",
     {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"b":"x","c":null})", R"({"a":1,"b":"","c":null})"},
     {"{}", R"({"a":1})", R"({"a":1,"c":null})", R"({"b":"x",})", R"({,"b":"x"})"}},
    {R"({"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
     {"{}", R"({"a":1})", R"({"a":1,"b":"x"})", R"({"ab":"x","c":"y"})"}, {R"({"a":"x"})", R"({"b":1})", R"({"\u0061":"x"})", R"({"b":"x","a":"y"})"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1})", {R"({"x":1})"}, {"{}", R"({"x":"1"})"}},
    {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
    {R"({"type":"object","required":["z"],"properties":{"a":{"type":"null"}}})", {R"({"z":[1]})", R"({"a":null,"z":1})"}, {"{}"}},
    {R"({"type":"object","patternProperties":{"^x-[a-z]+$":{"type":"integer"}},"additionalProperties":false})", {"{}", R"({"x-a":1})"},
     {R"({"y":1})", R"({"x-a":"1"})"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":1}},"required":["k"]}]})", {"5", R"({"k":1})"}, {"\"5\"", "{}"}},
    {R"({"oneOf":[{"type":"string","maxLength":1},{"type":"boolean"}]})", {R"("a")", "true"}, {R"("ab")", "1"}},
    {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]})",
     {R"({"a":1,"b":""})"}, {R"({"a":1})", R"({"b":""})"}},
    {R"({"allOf":[{"type":"integer","minimum":3},{"minimum":1,"maximum":9}]})", {"3", "9"}, {"2", "10"}},
    {R"({"allOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"type":"integer","maximum":4}},"additionalProperties":false}]})",
     {"{}", R"({"a":3})"}, {R"({"a":5})", R"({"a":2})", R"({"b":1})"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})",
     {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"}},
    {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"}, {R"({"v":1})", R"({"v":1,"next":{}})"}},
    {R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"required":["children"]})",
     {R"({"children":[]})", R"({"children":[{"children":[]},{"children":[]}]})"}, {"{}", R"({"children":[{}]})"}},
    {R"({"definitions":{"a/b":{"type":"integer"}},"properties":{"x":{"$ref":"#/definitions/a~1b","description":"d","minimum":2}}})",
     {R"({"x":2})"}, {R"({"x":1})", R"({"x":"2"})"}},
};

TEST(JsonSchema, AcceptsAndRejects) {
  for (const Case& c : kCases) {
    const auto grammar = GrammarOf(c.schema);
    for (const std::string& text : c.yes) EXPECT_TRUE(Accepts(*grammar, text)) << c.schema << " must accept " << text;
    for (const std::string& text : c.no) EXPECT_FALSE(Accepts(*grammar, text)) << c.schema << " must not accept " << text;
    for (const std::string& text : c.yes) {
      const auto value = ParseOrderedJson(text);
      ASSERT_TRUE(value.ok()) << text;
      const nlohmann::ordered_json schema = *ParseOrderedJson(c.schema);
      EXPECT_TRUE(testing::IsValid(schema, *value, schema)) << c.schema << ": " << text;
    }
  }
}

TEST(JsonSchema, AnyJsonObject) {
  Grammar grammar(AnyJsonObject(), testing::ByteTokens());
  EXPECT_TRUE(Accepts(grammar, R"({"a":[{}]})"));
  EXPECT_FALSE(Accepts(grammar, "[]"));
}

TEST(JsonSchema, BlanksAreBounded) {
  const auto grammar = GrammarOf(R"({"type":"array","items":{"type":"integer"}})");
  EXPECT_TRUE(Accepts(*grammar, absl::StrCat("[\n", std::string(16, ' '), "1]")));
  EXPECT_FALSE(Accepts(*grammar, absl::StrCat("[\n", std::string(17, ' '), "1]")));
  EXPECT_FALSE(Accepts(*grammar, "[  1]"));
  EXPECT_FALSE(Accepts(*grammar, "[\n\n1]"));
}

TEST(JsonSchema, NestingIsBounded) {
  const auto grammar = GrammarOf("true");
  const int most = Program::kMaxDepth - 1;
  const auto nested = [](int n) { return absl::StrCat(std::string(n, '['), std::string(n, ']')); };
  EXPECT_TRUE(Accepts(*grammar, nested(most)));
  EXPECT_FALSE(Accepts(*grammar, nested(most + 2)));
}

TEST(JsonSchema, RefusalsNameThePlace) {
  const struct {
    const char* schema;
    const char* place;
    const char* reason;
  } kRefused[] = {
      {R"({"properties":{"a":{"not":{"type":"string"}}}})", "#/properties/a: ", R"("not" is not supported)"},
      {R"({"items":{"type":"array","uniqueItems":true}})", "#/items: ", R"("uniqueItems" is not supported)"},
      {R"({"properties":{"a/b":{"type":"string","format":"regex"}}})", "#/properties/a~1b: ", R"("format" "regex")"},
      {R"({"properties":{"a":{"type":"strin"}}})", "#/properties/a: ", R"("type" "strin")"},
      {R"({"type":"string","minLenght":3})", "#: ", R"("minLenght" is not supported)"},
      {R"({"type":"string","pattern":"(?=a)b"})", "#: ", "byte 3: look-around is not supported"},
      {R"({"type":"string","pattern":"a\\b"})", "#: ", "is not supported"},
      {R"({"type":"string","pattern":"[a"})", "#: ", "a [ without its ]"},
      {R"({"type":"string","pattern":"(a$)b"})", "#: ", "^ and $"},
      {R"({"$ref":"#/$defs/none"})", "#: ", "names nothing"},
      {R"({"$ref":"http://example.com/x"})", "#: ", "only \"#\" and"},
      {R"({"enum":[]})", "#: ", "\"enum\""},
      {R"({"type":"string","enum":["a"],"minLength":2})", "#: ", "beside \"enum\""},
      {R"({"anyOf":[]})", "#: ", "\"anyOf\""},
      {R"({"type":"integer","minimum":"3"})", "#: ", "\"minimum\" is no number"},
      {R"({"type":"array","minItems":-1})", "#: ", "\"minItems\""},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "#: ", "\"pattern\""},
      {R"({"required":[1]})", "#: ", "\"required\""},
      {"3", "#: ", "a schema is an object"},
      {"{", "#: ", "invalid JSON"},
      // Nothing can be valid.
      {"false", "#: ", "nothing"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "#: ", "nothing"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "#: ", "nothing"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "#: ", "nothing"},
      {R"({"type":"string","pattern":"^a{5}$","maxLength":3})", "#: ", "nothing"},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "#: ", "nothing"},
      {R"({"$ref":"#"})", "#: ", "nothing"},
      {R"({"required":["a"],"additionalProperties":false,"type":"object"})", "#: ", "nothing"},
  };
  for (const auto& refused : kRefused) {
    EXPECT_THAT(CompileJsonSchema(refused.schema).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(::testing::StartsWith(refused.place), HasSubstr(refused.reason))))
        << refused.schema;
  }
}

TEST(JsonSchema, LenientLeavesOut) {
  const auto grammar = GrammarOf(R"({"type":"array","uniqueItems":true,"items":{"type":"integer","unheard":1}})", /*lenient=*/true);
  EXPECT_TRUE(Accepts(*grammar, "[1,1]"));
  EXPECT_FALSE(Accepts(*grammar, R"(["a"])"));
}

// What can never be is left out where something else can be.
TEST(JsonSchema, ImpossiblePartsAreLeftOut) {
  EXPECT_FALSE(Accepts(*GrammarOf(R"({"anyOf":[false,{"type":"null"}]})"), "1"));
  const auto object = GrammarOf(R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})");
  EXPECT_TRUE(Accepts(*object, R"({"b":null})"));
  const auto grammar = testing::GrammarOf(R"({"type":"array","items":false})");
  const auto state = grammar->Advance(grammar->Start(), "[");
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(grammar->Advance(state, "1"), nullptr);
  EXPECT_TRUE(Accepts(*grammar, "[]"));
}

std::string Repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// Schemas made to cost much end with a refusal, or in a program within its bounds.
TEST(JsonSchema, HostileSchemasAreBounded) {
  std::string doubling = R"({"$defs":{"d0":{"type":"string"})";
  for (int i = 1; i < 60; ++i) {
    absl::StrAppend(&doubling, ",\"d", i, "\":{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#/$defs/d", i - 1, "\"},{\"minLength\":", i,
                    "}]},{\"anyOf\":[{\"$ref\":\"#/$defs/d", i - 1, "\"},{\"maxLength\":", i + 100, "}]}]}");
  }
  doubling += R"(},"$ref":"#/$defs/d59"})";
  std::string values = R"({"enum":[0)";
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&values, ",\"value number ", i * 7919, "\"");
  std::string members = R"({"type":"object","properties":{"m":{})";
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&members, ",\"m", i, "\":{\"type\":\"integer\"}");
  const std::string kHostile[] = {
      doubling,
      values + "]}",
      members + "}}",
      R"({"allOf":[{"$ref":"#"}]})",
      R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})",
      R"({"type":"string","pattern":"(a|aa|aaa)*(b|bb)*{1000}"})",
      R"({"type":"string","pattern":"^(.*a.{1000})$"})",
      R"({"type":"string","pattern":"^((((a{100}){100}){100}){100})$"})",
      R"({"type":"string","pattern":"^(((){10000}){10000}){10000}$"})",
      R"({"type":"string","pattern":"^.{9999}$","maxLength":10000})",
      R"({"type":"string","pattern":"(x+x+)+y"})",
      R"({"type":"string","pattern":")" + Repeated("(", 5000) + R"("})",
      R"({"type":"integer","multipleOf":9999,"minimum":1e300})",
      R"({"type":"number","minimum":1e-300,"maximum":1e300})",
      R"({"type":"array","minItems":1000000000,"maxItems":1000000000,"items":{"type":"array","minItems":999999}})",
      R"({"type":"string","minLength":999999999})",
      Repeated(R"({"items":)", 63) + "true" + Repeated("}", 63),
      Repeated(R"({"items":)", 5000) + "true" + Repeated("}", 5000),
      "[" + std::string(kMaxSchemaBytes, ' ') + "]",
  };
  for (const std::string& schema : kHostile) {
    const auto program = CompileJsonSchema(schema);
    if (!program.ok()) {
      EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument) << schema.substr(0, 100) << program.status();
      continue;
    }
    EXPECT_LE(program->states.size(), ProgramBuilder::kMaxStates);
    Grammar grammar(*program, testing::ByteTokens());
    Grammar::StateRef state = grammar.Start();
    for (int i = 0; i < 200 && !state->complete(); ++i) {
      const auto mask = grammar.Mask(state);
      int byte = 255;
      while (byte >= 0 && !mask->allows(byte)) --byte;
      ASSERT_GE(byte, 0) << schema.substr(0, 100);
      state = grammar.Advance(state, std::string(1, static_cast<char>(byte)));
      ASSERT_NE(state, nullptr);
    }
    EXPECT_LE(grammar.num_states(), Grammar::kMaxStates);
    EXPECT_LE(grammar.num_masks(), Grammar::kMaxMasks);
  }
}

}  // namespace
}  // namespace baton
