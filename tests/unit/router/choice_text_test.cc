// SPDX-License-Identifier: Apache-2.0
#include "common/base/model_name.h"
#include "router/choice_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/served_model.h"
#include "tests/unit/router/fake_tokenizer.h"

namespace baton {
namespace {

class ChoiceTextTest : public ::testing::Test {
 protected:
  // Feeds tokens one by one; the text released after each, joined by "|".
  std::string Run(const std::vector<int32_t>& ids, std::vector<std::string> stops, internal::FinishReason finish = internal::LENGTH) {
    ChoiceText choice(&tokenizer_, false, true, *StopStringMatcher::Create(std::move(stops)), 0);
    std::string all;
    for (size_t i = 0; i < ids.size() && !choice.finished(); ++i) {
      internal::GeneratedToken token;
      token.set_token_id(ids[i]);
      if (i + 1 == ids.size()) token.set_finish_reason(finish);
      v1::ChoiceDelta delta;
      choice.Push({token}, &delta);
      if (i > 0) all += "|";
      all += delta.text();
      last_ = delta;
    }
    reason_ = choice.finish_reason();
    count_ = choice.num_tokens();
    by_text_ = choice.stopped_by_text();
    return all;
  }
  // 257.. : the pieces of case B05 and of a character in three tokens.
  testing::FakeTokenizer tokenizer_{{"ABC", "DEF", "G", "HI", "J", "K", " Paris", "\xF0\x9F", "\x8C", "\x8D"}};
  v1::ChoiceDelta last_;
  std::string reason_;
  int count_ = 0;
  bool by_text_ = false;
};

TEST_F(ChoiceTextTest, B05StopStringOverSeveralTokens) {
  const std::vector<int32_t> ids = {257, 258, 259, 260, 261, 262};
  EXPECT_EQ(Run(ids, {"DEFGHIJ"}), "ABC||||");
  EXPECT_EQ(reason_, "stop");
  EXPECT_TRUE(by_text_);
  EXPECT_EQ(count_, 5);
  EXPECT_EQ(Run(ids, {"DEFGX"}), "ABC|||DEFGHI|J|K");
  EXPECT_EQ(reason_, "length");
  EXPECT_EQ(Run({257, 263, 258}, {"Pari"}), "ABC| ");
}

TEST_F(ChoiceTextTest, B01B02CharactersAreWhole) {
  EXPECT_EQ(Run({264, 265, 266}, {}), "||\xF0\x9F\x8C\x8D");
  EXPECT_EQ(Run({264, 265}, {}), "|\xEF\xBF\xBD");
  EXPECT_EQ(last_.logprobs(0).token_bytes(), "\x8C");
}

// The token that makes an answer whole in its format is part of it.
TEST_F(ChoiceTextTest, CompletingTokenIsText) {
  EXPECT_EQ(Run({'a', 'b'}, {}, internal::COMPLETE), "a|b");
  EXPECT_EQ(reason_, "stop");
  EXPECT_FALSE(by_text_);
}

TEST_F(ChoiceTextTest, EndTokenIsCountedButNoText) {
  EXPECT_EQ(Run({'a', testing::FakeTokenizer::kEnd}, {}, internal::STOP), "a|");
  EXPECT_EQ(count_, 2);
  EXPECT_EQ(reason_, "stop");
  EXPECT_FALSE(by_text_);
  EXPECT_EQ(Run({'a', 'b'}, {}, internal::STOP), "a|");  // A stop token id that has text.
}

TEST_F(ChoiceTextTest, HeldTextIsReleasedAtTheEnd) { EXPECT_EQ(Run({'a', 'b'}, {"abc"}), "|ab"); }

TEST(ShortModelNameTest, Names) {
  EXPECT_EQ(ShortModelName("/m/SmolLM2-135M-Instruct.Q4_1.gguf"), "smollm2");
  EXPECT_EQ(ShortModelName("/m/tiny_llama/"), "tiny_llama");
  EXPECT_EQ(ShortModelName("/m/qwen3/tokenizer.json"), "qwen3");
}

}  // namespace
}  // namespace baton
