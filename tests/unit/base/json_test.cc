// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/memory.h"
#include "common/base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(ParseJson, Values) {
  ASSERT_OK_AND_ASSIGN(const nlohmann::json json, ParseJson(R"({"a":[1,2.5,"x\u00e9","[{\"]"],"b":null})"));
  EXPECT_EQ(json["a"][0], 1);
  EXPECT_EQ(json["a"][2], "x\xC3\xA9");
  EXPECT_TRUE(json["b"].is_null());
}

// nlohmann takes it for the end.
TEST(ParseJson, ANulByteIsNoEnd) {
  for (const std::string& text : {std::string("{}\0", 3), std::string("{}\0x", 4), std::string("\0{}", 3), std::string("{\"a\":\"\0\"}", 9)}) {
    EXPECT_THAT(ParseJson(text), StatusIs(kInvalid, HasSubstr("NUL")));
    EXPECT_THAT(ParseOrderedJson(text), StatusIs(kInvalid, HasSubstr("NUL")));
  }
}

TEST(ParseJson, OrderedKeepsTheOrder) {
  ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json json, ParseOrderedJson(R"({"z":1,"a":2,"m":3})"));
  EXPECT_EQ(DumpJson(json), R"({"z":1,"a":2,"m":3})");
}

TEST(ParseJson, OrderedKeepsThePlaceAndTheLastValueOfANameThatComesTwice) {
  for (const int count : {3, 15, 16, 17, 40}) {  // Few members and many are found in different ways.
    std::string text = R"({"first":{"x":[1]})", expected = R"({"first":9)";
    for (int i = 1; i < count; ++i) {
      absl::StrAppend(&text, ",\"m", i, "\":{\"a\":", i, "}");
      absl::StrAppend(&expected, ",\"m", i, "\":{\"a\":", i, "}");
    }
    absl::StrAppend(&text, R"(,"first":9,"last":[{},[]],"m1":{"a":1}})");
    absl::StrAppend(&expected, R"(,"last":[{},[]]})");
    ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json json, ParseOrderedJson(text));
    EXPECT_EQ(DumpJson(json), expected);
  }
}

// What takes time squared in the members of an object takes hours here.
TEST(ParseJson, ObjectsMayHaveMillionsOfMembers) {
  constexpr int kMembers = 1000000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"", i, "\":", i);
  text += "}";
  ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json ordered, ParseOrderedJson(text));
  ASSERT_EQ(ordered.size(), size_t{kMembers});
  EXPECT_EQ(ordered.back(), kMembers - 1);
  ASSERT_OK_AND_ASSIGN(const nlohmann::json sorted, ParseJson(text));
  EXPECT_EQ(sorted.size(), size_t{kMembers});
}

TEST(ParseJson, OrderedErrorsNameTheByte) {
  EXPECT_THAT(ParseOrderedJson(""), StatusIs(kInvalid, HasSubstr("at byte 0: ")));
  EXPECT_THAT(ParseOrderedJson("{\"a\": tru}"), StatusIs(kInvalid, HasSubstr("at byte 9: ")));
  EXPECT_THAT(ParseOrderedJson("{\"a\":1,}"), StatusIs(kInvalid, HasSubstr("at byte 7: ")));
  EXPECT_THAT(ParseOrderedJson("[1e999]"), StatusIs(kInvalid, HasSubstr("invalid JSON at byte")));
  EXPECT_THAT(ParseOrderedJson("[1] [2]"), StatusIs(kInvalid, HasSubstr("at byte 4: ")));
}

// B16: memory stays flat however deep the nesting is.
TEST(ParseJson, DeepNestingIsRefusedBeforeAnythingIsBuilt) {
  EXPECT_TRUE(ParseJson(Repeat("[", 64) + Repeat("]", 64)).ok());
  EXPECT_THAT(ParseJson(Repeat("[", 65) + Repeat("]", 65)), StatusIs(kInvalid, HasSubstr("at byte 64: nested deeper than 64")));
  for (const std::string unit : {"[", "{\"a\":"}) {
    const std::string text = Repeat(unit, 1000000);
    const int64_t before = ResidentBytes();
    EXPECT_THAT(ParseJson(text), StatusIs(kInvalid, HasSubstr("nested deeper than 64 levels")));
    EXPECT_THAT(ParseJson("{\"x\":" + text), StatusIs(kInvalid, HasSubstr("nested")));
    EXPECT_LT(ResidentBytes() - before, 32 << 20);
  }
  // Brackets in strings are no nesting.
  EXPECT_TRUE(ParseJson(absl::StrCat("\"", Repeat("[", 1000), "\\\"", Repeat("{", 1000), "\"")).ok());
}

TEST(ParseJson, ErrorsNameTheByte) {
  EXPECT_THAT(ParseJson(""), StatusIs(kInvalid, HasSubstr("at byte 0: ")));
  EXPECT_THAT(ParseJson("{\"a\": tru}"), StatusIs(kInvalid, HasSubstr("at byte 9: ")));
  EXPECT_THAT(ParseJson("[1] [2]"), StatusIs(kInvalid, HasSubstr("at byte 4: ")));
  EXPECT_THAT(ParseJson("[1,]"), StatusIs(kInvalid, HasSubstr("at byte 3: ")));
  EXPECT_THAT(ParseJson("[1e999]"), StatusIs(kInvalid, HasSubstr("invalid JSON at byte")));
  EXPECT_THAT(ParseJson("[NaN]"), StatusIs(kInvalid, HasSubstr("at byte 1: ")));
  EXPECT_THAT(ParseJson("\"\\ud800\""), StatusIs(kInvalid, HasSubstr("invalid JSON")));
  EXPECT_THAT(ParseJson(absl::string_view("\"a\0b\"", 5)), StatusIs(kInvalid, HasSubstr("at byte 2: ")));
}

TEST(ParseJson, InvalidUtf8IsRefusedAndNotEchoed) {
  for (const char* text : {"\"\xFF\"", "{\"\xC3\x28\":1}", "\"\xED\xA0\x80\"", "\"\xF0\x9F\"", "\xFF"}) {
    const absl::StatusOr<nlohmann::json> json = ParseJson(text);
    EXPECT_THAT(json, StatusIs(kInvalid, HasSubstr("invalid UTF-8 byte 0x")));
    EXPECT_TRUE(IsValidUtf8(json.status().message()));
  }
}

TEST(DumpJson, NeverThrows) {
  EXPECT_EQ(DumpJson(nlohmann::json{{"x", "a\xFF"}}), "{\"x\":\"a\xEF\xBF\xBD\"}");
  EXPECT_EQ(DumpJson(nlohmann::json{{"x", std::nan("")}, {"y", -INFINITY}}), R"({"x":null,"y":null})");
  EXPECT_EQ(DumpJson(nlohmann::json{1}, 2), "[\n  1\n]");
}

TEST(Utf8, TableOfTheUnicodeStandard) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("a\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"));
  for (const char* bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xC2", "\xE1\x80", "\xF1\x80\x80"}) {
    EXPECT_EQ(ValidUtf8Prefix(std::string("ok") + bad), 2u);
  }
  // Example of the standard (table 3-8): one U+FFFD per maximal subpart.
  const std::string fffd = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + fffd + fffd + fffd + "b" + fffd + "c" + fffd + fffd + "d");
}

}  // namespace
}  // namespace baton
