// SPDX-License-Identifier: Apache-2.0
#include "common/text/stop_string_matcher.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

StopStringMatcher Make(std::vector<std::string> stops, bool include = false) {
  auto matcher = StopStringMatcher::Create(std::move(stops), include);
  EXPECT_TRUE(matcher.ok()) << matcher.status().ToString();
  return *std::move(matcher);
}

struct Outcome {
  std::string text;
  std::optional<size_t> stopped;
  bool operator==(const Outcome&) const = default;
};

Outcome RunAll(StopStringMatcher matcher, const std::vector<std::string>& parts) {
  Outcome outcome;
  for (const std::string& part : parts) {
    auto result = matcher.Push(part);
    outcome.text += result.text;
    if (result.stopped) {
      outcome.stopped = result.stopped;
      return outcome;
    }
  }
  outcome.text += matcher.Finish();
  return outcome;
}

// B05.
TEST(StopStringMatcherTest, OverSeveralTokens) {
  const std::vector<std::string> parts = {"ABC", "DEF", "G", "HI", "J", "K"};
  EXPECT_EQ(RunAll(Make({"DEFGHIJ"}), parts), (Outcome{"ABC", 0}));
  EXPECT_EQ(RunAll(Make({"DEFGX"}), parts), (Outcome{"ABCDEFGHIJK", std::nullopt}));
  EXPECT_EQ(RunAll(Make({"Pari"}), {"The capital is Par", "is"}), (Outcome{"The capital is ", 0}));
  EXPECT_EQ(RunAll(Make({"Pari"}), {"The capital is", " Paris"}), (Outcome{"The capital is ", 0}));
  EXPECT_EQ(RunAll(Make({"DEFGHIJ"}, /*include=*/true), parts), (Outcome{"ABCDEFGHIJ", 0}));
}

TEST(StopStringMatcherTest, HoldsBackNoMoreThanItMust) {
  StopStringMatcher matcher = Make({"DEFGX", "ff"});
  EXPECT_EQ(matcher.Push("ABC").text, "ABC");
  EXPECT_EQ(matcher.Push("DEF").text, "");
  EXPECT_EQ(matcher.Push("G").text, "");
  EXPECT_EQ(matcher.Push("DE").text, "DEFG");
  EXPECT_EQ(matcher.Push("f").text, "DE");
  EXPECT_EQ(matcher.Finish(), "f");
  EXPECT_EQ(Make({}).Push("anything").text, "anything");
}

TEST(StopStringMatcherTest, TheFirstToBeCompleteWins) {
  EXPECT_EQ(RunAll(Make({"bcd", "c"}), {"abcd"}), (Outcome{"ab", 1}));
  EXPECT_EQ(RunAll(Make({"c", "bc"}), {"abcd"}), (Outcome{"a", 1}));
  EXPECT_EQ(RunAll(Make({"aab"}), {"aaa", "ab"}), (Outcome{"aa", 0}));
  EXPECT_EQ(RunAll(Make({"é"}), {"è", "é!"}), (Outcome{"è", 0}));
}

TEST(StopStringMatcherTest, Refusals) {
  EXPECT_THAT(StopStringMatcher::Create({"a", ""}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stop[1]: empty")));
  EXPECT_THAT(StopStringMatcher::Create(std::vector<std::string>(17, "a")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("17 strings, at most 16")));
  EXPECT_THAT(StopStringMatcher::Create({std::string(4097, 'a')}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4097 bytes, at most 4096")));
  EXPECT_THAT(StopStringMatcher::Create({"\xFF"}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stop[0]")));
}

// Against looking at every end of the text for every stop string.
TEST(StopStringMatcherTest, RandomTexts) {
  const uint32_t seed = 11;
  std::mt19937 rng(seed);
  const auto random_text = [&rng](size_t max) {
    std::string text;
    for (size_t i = rng() % max + 1; i > 0; --i) text.push_back(static_cast<char>('a' + rng() % 2));
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = rng() % 4; i > 0; --i) stops.push_back(random_text(6));
    const std::string text = random_text(20);
    Outcome wanted = {text, std::nullopt};
    for (size_t end = 1; end <= text.size() && !wanted.stopped; ++end) {
      size_t longest = 0;
      for (size_t s = 0; s < stops.size(); ++s) {
        const size_t size = stops[s].size();
        if (size > longest && size <= end && text.compare(end - size, size, stops[s]) == 0) {
          longest = size;
          wanted = {text.substr(0, end - size), s};
        }
      }
    }
    std::vector<std::string> parts;
    for (size_t pos = 0; pos < text.size();) {
      const size_t size = 1 + rng() % 4;
      parts.push_back(text.substr(pos, size));
      pos += size;
    }
    EXPECT_EQ(RunAll(Make(stops), parts), wanted) << "seed " << seed << " round " << round;
  }
}

}  // namespace
}  // namespace baton
