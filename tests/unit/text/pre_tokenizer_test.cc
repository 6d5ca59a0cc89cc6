// SPDX-License-Identifier: Apache-2.0
#include "common/text/pre_tokenizer.h"

#include <string>
#include <vector>

#include "common/text/normalizer.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

std::vector<std::string> Words(const json& value, const std::string& text, bool at_start = true) {
  auto pre_tokenizer = PreTokenizer::FromJson(value);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().ToString();
  auto words = pre_tokenizer->Apply(text, at_start);
  EXPECT_TRUE(words.ok()) << words.status().ToString();
  std::vector<std::string> out;
  for (const auto& word : words->words) out.push_back(words->text.substr(word.begin, word.end - word.begin));
  return out;
}

json Split(const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", "-"}}}, {"behavior", behavior}, {"invert", invert}};
}

// The example of the `tokenizers` documentation.
TEST(PreTokenizerTest, Behaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(Words(Split("Removed"), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Words(Split("Isolated"), text), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(Words(Split("MergedWithPrevious"), text), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(Words(Split("MergedWithNext"), text), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(Words(Split("Contiguous"), text), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(Words(Split("Removed", /*invert=*/true), text), ElementsAre("-", "-", "-"));
}

// C14.
TEST(PreTokenizerTest, AStringPatternIsLiteral) {
  EXPECT_THAT(Words({{"type", "Split"}, {"pattern", {{"String", "\\s+"}}}, {"behavior", "Isolated"}}, "a b\\s+c"),
              ElementsAre("a b", "\\s+", "c"));
}

TEST(PreTokenizerTest, ByteLevel) {
  EXPECT_THAT(Words({{"type", "ByteLevel"}, {"add_prefix_space", false}}, "I'm 42, é\n"),
              ElementsAre("I", "'m", "\u012042", ",", "\u0120\u00c3\u00a9", "\u010a"));
  EXPECT_THAT(Words({{"type", "ByteLevel"}, {"add_prefix_space", true}}, "a"), ElementsAre("\u0120a"));
  EXPECT_THAT(Words({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, "a b"),
              ElementsAre("a\u0120b"));
}

TEST(PreTokenizerTest, Digits) {
  EXPECT_THAT(Words({{"type", "Digits"}, {"individual_digits", true}}, "a12\u00bd"),
              ElementsAre("a", "1", "2", "\u00bd"));
  EXPECT_THAT(Words({{"type", "Digits"}, {"individual_digits", false}}, "a12b"), ElementsAre("a", "12", "b"));
}

TEST(PreTokenizerTest, Metaspace) {
  const json always = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  EXPECT_THAT(Words(always, "a b", false), ElementsAre("\u2581a", "\u2581b"));
  EXPECT_THAT(Words(always, " a"), ElementsAre("\u2581a"));
  json first = always;
  first["prepend_scheme"] = "first";
  EXPECT_THAT(Words(first, "a b", true), ElementsAre("\u2581a", "\u2581b"));
  EXPECT_THAT(Words(first, "a b", false), ElementsAre("a", "\u2581b"));
  json whole = always;
  whole["split"] = false;
  EXPECT_THAT(Words(whole, "a b"), ElementsAre("\u2581a\u2581b"));
  EXPECT_THAT(Words({{"type", "Metaspace"}, {"add_prefix_space", false}}, "a b"), ElementsAre("a", "\u2581b"));
}

TEST(PreTokenizerTest, TheOthers) {
  EXPECT_THAT(Words({{"type", "Punctuation"}, {"behavior", "Isolated"}}, "a,b$c\u3002"),
              ElementsAre("a", ",", "b", "$", "c", "\u3002"));
  EXPECT_THAT(Words({{"type", "Whitespace"}}, "Hey man!! x"), ElementsAre("Hey", "man", "!!", "x"));
  EXPECT_THAT(Words({{"type", "WhitespaceSplit"}}, " Hey  man!"), ElementsAre("Hey", "man!"));
  EXPECT_THAT(Words({{"type", "CharDelimiterSplit"}, {"delimiter", "|"}}, "a|b"), ElementsAre("a", "b"));
  EXPECT_THAT(Words(nullptr, "a b"), ElementsAre("a b"));
  EXPECT_THAT(Words(nullptr, ""), ElementsAre());
}

TEST(NormalizerTest, Steps) {
  const auto apply = [](const json& value, const std::string& text) {
    auto normalizer = Normalizer::FromJson(value);
    EXPECT_TRUE(normalizer.ok()) << normalizer.status().ToString();
    return *normalizer->Apply(text);
  };
  EXPECT_EQ(apply({{"type", "Sequence"},
                   {"normalizers",
                    {{{"type", "Prepend"}, {"prepend", "_"}},
                     {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}}}}},
                  "a b"),
            "_a_b");
  EXPECT_EQ(apply({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(apply({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}, "a   b"), "a b");
  EXPECT_EQ(apply({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " \u3000a "), "a ");
  EXPECT_EQ(apply({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a \n"), " a");
  EXPECT_EQ(apply({{"type", "Strip"}}, " \n"), "");
  EXPECT_EQ(apply({{"type", "NFC"}}, "e\u0301"), "\u00e9");
  EXPECT_EQ(apply({{"type", "Lowercase"}}, "ÀB"), "àb");
  EXPECT_EQ(apply({{"type", "ByteLevel"}}, " a"), "\u0120a");
}

}  // namespace
}  // namespace baton
