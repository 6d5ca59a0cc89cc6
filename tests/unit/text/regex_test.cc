// SPDX-License-Identifier: Apache-2.0
#include "common/text/regex.h"

#include <string>
#include <vector>

#include "common/text/pattern.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern);
  EXPECT_THAT(regex, IsOk());
  std::vector<TextRange> ranges;
  std::vector<std::string> out;
  if (!regex.ok()) return out;
  EXPECT_THAT(regex->FindAll(text, &ranges), IsOk());
  for (const TextRange& range : ranges) out.push_back(text.substr(range.begin, range.end - range.begin));
  return out;
}

TEST(RegexTest, UnicodeClasses) {
  EXPECT_THAT(Matches(R"(\s+)", "a\u00a0\u3000b\u180ec\u0085d"), ElementsAre("\u00a0\u3000", "\u0085"));
  EXPECT_THAT(Matches(R"(\S+)", "ab\u2003c"), ElementsAre("ab", "c"));
  EXPECT_THAT(Matches(R"([^\s\p{L}]+)", "ab\u180e1 2"), ElementsAre("\u180e1", "2"));
  EXPECT_THAT(Matches(R"(\d+)", "x٣٤²"), ElementsAre("٣٤"));
  EXPECT_THAT(Matches(R"(\w+)", "né-e\u0301 a_b"), ElementsAre("né", "e\u0301", "a_b"));
  EXPECT_THAT(Matches(R"(\h+)", "xyzAF09"), ElementsAre("AF09"));
  EXPECT_THAT(Matches(R"(\p{Han}+)", "漢字ー・"), ElementsAre("漢字"));  // ー and ・ are extensions of Han only.
  EXPECT_THAT(Matches(R"(\p{^L}+)", "ab12"), ElementsAre("12"));
  EXPECT_THAT(Matches(R"(\p{S}+)", "a\U0001FA77\U0001F600b"), ElementsAre("\U0001FA77\U0001F600"));  // Of Unicode 15.
  EXPECT_THAT(Matches(R"(\P{L}+|[^\p{So}])", "\U0002EBF0\U0001FAE8"), ElementsAre("\U0002EBF0", "\U0001FAE8"));
  EXPECT_THAT(Matches(R"(\u4e00)", "一"), ElementsAre("一"));
  EXPECT_THAT(Matches(R"((?i:'s|'ll))", "'S 'lL '\u017f"), ElementsAre("'S", "'lL", "'\u017f"));
}

TEST(RegexTest, EmptyMatchesCut) {
  std::vector<TextRange> ranges;
  ASSERT_OK_AND_ASSIGN(const Regex regex, Regex::Compile(R"((?=(\d{3})+(?!\d)))"));
  ASSERT_THAT(regex.FindAll("1234567", &ranges), IsOk());
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0], (TextRange{1, 1}));
  EXPECT_EQ(ranges[1], (TextRange{4, 4}));
}

TEST(RegexTest, RefusesWhatItCannotSay) {
  for (const char* pattern :
       {"[a[bc]]", "[a-z&&[^b]]", "a{1,2}+", "(a", "[a", R"(\u12)", "a\\", R"(\p{NoSuchScript})"}) {
    EXPECT_THAT(Regex::Compile(pattern), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pattern '")))
        << pattern;
  }
  EXPECT_THAT(Regex::Compile(std::string(100000, '(')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pattern")));
}

TEST(RegexTest, BacktrackingIsBounded) {
  ASSERT_OK_AND_ASSIGN(const Regex regex, Regex::Compile("(a+)+$"));
  std::vector<TextRange> ranges;
  EXPECT_THAT(regex.FindAll(std::string(40, 'a') + "b", &ranges),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text near byte 0")));
}

TEST(PatternTest, AStringIsLiteral) {
  ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::FromJson({{"String", "\\s+"}}, "pattern"));
  std::vector<TextRange> ranges;
  ASSERT_THAT(pattern.FindAll("a \\s+b", &ranges), IsOk());
  EXPECT_THAT(ranges, ElementsAre(TextRange{2, 5}));
  EXPECT_EQ(*pattern.ReplaceAll("x\\s+\\s+", "$1"), "x$1$1");
  ranges.clear();
  ASSERT_THAT(Pattern::Literal("").FindAll("abc", &ranges), IsOk());
  EXPECT_THAT(ranges, IsEmpty());
  EXPECT_THAT(Pattern::FromJson({{"Glob", "*"}}, "normalizer.pattern"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("normalizer.pattern")));
}

}  // namespace
}  // namespace baton
