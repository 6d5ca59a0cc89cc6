// SPDX-License-Identifier: Apache-2.0
#include "common/text/detokenizer.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/base/utf8.h"
#include "common/text/tokenizer_json.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

std::unique_ptr<const Tokenizer> Make(const nlohmann::json& file) {
  auto tokenizer = TokenizerFromJson(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

// All parts of a stream, the last one from Finish.
std::vector<std::string> Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                bool keep_special = false) {
  Detokenizer detokenizer(&tokenizer, keep_special);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(detokenizer.Push(id));
  parts.push_back(detokenizer.Finish());
  return parts;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

std::vector<int32_t> Find(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<int32_t> ids;
  for (const std::string& text : texts) {
    const auto id = tokenizer.FindToken(text);
    EXPECT_TRUE(id.has_value()) << text;
    ids.push_back(id.value_or(-1));
  }
  return ids;
}

// B01. The byte tokens of the tiny vocabulary have the ids of their bytes.
TEST(DetokenizerTest, CharactersOverSeveralTokens) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  const std::vector<int32_t> globe = {0xF0, 0x9F, 0x8C, 0x8D};
  EXPECT_EQ(Stream(*tokenizer, globe), (std::vector<std::string>{"", "", "", "🌍", ""}));
  EXPECT_EQ(tokenizer->Decode(globe, false), "🌍");
  EXPECT_EQ(tokenizer->TokenBytes(0xF0), "\xF0");
}

// B02.
TEST(DetokenizerTest, AnUnfinishedCharacterIsReplacedAtTheEnd) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  for (const auto& [ids, wanted] :
       std::map<std::vector<int32_t>, std::string>{{{0xF0}, kReplacement},
                                                   {{0xF0, 0x9F}, kReplacement},
                                                   {{0xC3, 0x28}, std::string(kReplacement) + "("},
                                                   {{0xE2, 0x80}, kReplacement},
                                                   {{0xFF}, kReplacement},
                                                   {{'a', 0xF0, 'b'}, std::string("a") + kReplacement + "b"}}) {
    EXPECT_EQ(tokenizer->Decode(ids, false), wanted);
    EXPECT_EQ(Joined(Stream(*tokenizer, ids)), wanted);
  }
}

// B04.
TEST(DetokenizerTest, OneDummySpaceGoesOnce) {
  const std::string mark = "\u2581";
  const auto tokenizer = Make(testing::TinySpmJson());
  const auto leading = Find(*tokenizer, {mark, mark + "x", mark + "ab"});
  EXPECT_EQ(Joined(Stream(*tokenizer, leading)), " x ab");
  EXPECT_EQ(tokenizer->Decode(leading, false), " x ab");
  const auto four = Find(*tokenizer, {mark + mark + mark + mark, "."});
  EXPECT_EQ(Joined(Stream(*tokenizer, four)), "   .");
  EXPECT_EQ(tokenizer->Decode(four, false), "   .");
  // Skipped special tokens do not count as the beginning; kept ones do.
  const auto begun = Find(*tokenizer, {"<s>", mark + "x"});
  EXPECT_EQ(tokenizer->Decode(begun, false), "x");
  EXPECT_EQ(tokenizer->Decode(begun, true), "<s> x");
}

TEST(DetokenizerTest, ByteTokens) {
  const auto tokenizer = Make(testing::TinySpmJson());
  const auto ids = Find(*tokenizer, {"<0xE4>", "<0xBD>", "<0xA0>"});
  EXPECT_EQ(Stream(*tokenizer, ids), (std::vector<std::string>{"", "", "你", ""}));
}

TEST(DetokenizerTest, SpecialTokensAndStrangers) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{300, 'a', 302, 301}, false), "a<think>");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{300, 'a', 302, 301}, true), "<|begin|>a<think><|end|>");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{-1, 'a', 299, 100000, INT32_MAX, INT32_MIN}, false), "a");
  // A skipped token between the bytes of a character does not break it.
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0xC3, 300, 0xA9}, false), "é");
}

TEST(DetokenizerTest, MetaspaceDropsTheSpacesOfTheFirstToken) {
  nlohmann::json file = testing::TinySpmJson();
  file["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
  const auto tokenizer = Make(file);
  EXPECT_EQ(tokenizer->Decode(Find(*tokenizer, {"\u2581x", "\u2581x"}), false), "x x");
  file["decoder"] = nullptr;
  EXPECT_EQ(Make(file)->Decode(Find(*tokenizer, {"x", "ab"}), false), "x ab");
}

// Random ids: the stream is the whole, is UTF-8, and is the bytes of the tokens with what is malformed replaced.
TEST(DetokenizerTest, RandomIds) {
  for (const auto& file : {testing::TinyByteLevelJson(), testing::TinySpmJson()}) {
    const auto tokenizer = Make(file);
    const uint32_t seed = 7;
    std::mt19937 rng(seed);
    for (int round = 0; round < 500; ++round) {
      std::vector<int32_t> ids;
      std::string bytes;
      for (int i = rng() % 20; i >= 0; --i) {
        ids.push_back(static_cast<int32_t>(rng() % (tokenizer->vocab_size() + 2)));
        if (!tokenizer->IsSpecial(ids.back())) bytes += std::string(tokenizer->TokenBytes(ids.back()));
      }
      if (tokenizer->leading_rule().kind == LeadingRule::Kind::kStrip && bytes[0] == ' ') bytes.erase(0, 1);
      const auto parts = Stream(*tokenizer, ids);
      for (const std::string& part : parts) EXPECT_TRUE(IsValidUtf8(part));
      EXPECT_EQ(Joined(parts), ReplaceInvalidUtf8(bytes)) << "seed " << seed << " round " << round;
      EXPECT_EQ(tokenizer->Decode(ids, false), Joined(parts)) << "seed " << seed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace baton
