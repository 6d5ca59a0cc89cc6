// SPDX-License-Identifier: Apache-2.0
// Exact ids of Llama 3 and Mistral for texts that went wrong elsewhere.
#include <string>
#include <utility>
#include <vector>

#include "common/text/tokenizer_json.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using testing::IdsText;
using Cases = std::vector<std::pair<std::string, std::vector<int32_t>>>;

class TokenizerIdsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::SharedExists("tokenizers/llama3_1/tokenizer.json.xz")) {
      GTEST_SKIP() << "no published tokenizers beside the tree";
    }
  }

  static void ExpectIds(const Tokenizer& tokenizer, const Cases& cases, const EncodeOptions& options = {}) {
    for (const auto& [text, wanted] : cases) {
      ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer.Encode(text, options));
      EXPECT_EQ(IdsText(ids), IdsText(wanted)) << "'" << text << "'";
    }
  }
};

TEST_F(TokenizerIdsTest, Llama3) {
  const auto tokenizer = testing::SharedTokenizer("llama3_1");
  ExpectIds(*tokenizer, {{"", {}},
                         {"Hello", {9906}},
                         {"  Hello", {220, 22691}},
                         {"Hello world", {9906, 1917}},
                         {"\n", {198}},
                         {" \n", {720}},
                         {"\n\n", {271}},
                         {"\n\n\n", {1432}},
                         {"\n\n\n\n", {1038}},
                         {"\n\n\n\n\n", {14963}},
                         {"\r\n", {319}},
                         {"\n \n", {27907}},
                         {"x\n \n y", {87, 27907, 379}},
                         {"a\n\n\nb", {64, 1432, 65}},
                         {"a\r\nb", {64, 319, 65}},
                         {"\t\t", {298}},
                         {"a  b", {64, 220, 293}},
                         {"a   b", {64, 256, 293}},
                         {"trailing  ", {376, 14612, 256}},
                         {"                ", {338}},
                         {"def f():\n    return  x", {755, 282, 4019, 262, 471, 220, 865}},
                         {"#include <x>\n", {1085, 366, 87, 397}},
                         {"3333", {8765, 18}},
                         {"33333", {8765, 1644}},
                         {"1234567", {4513, 10961, 22}},
                         {"3.14159", {18, 13, 9335, 2946}},
                         {"2024-01-01", {2366, 19, 12, 1721, 12, 1721}},
                         {"a1b22c333d4444", {64, 16, 65, 1313, 66, 8765, 67, 14870, 19}},
                         {"don't", {15357, 956}},
                         {"DON'T", {85741, 17773}},
                         {"I'M", {40, 28703}},
                         {"I'll've", {40, 3358, 3077}},
                         {"'LL", {6, 4178}},
                         {"'s", {596}},
                         {"'S", {13575}},
                         {"don\u2019t", {15357, 1431}},
                         {"I\u2019M", {40, 529, 44}},
                         {" Vi\u1ec7t", {101798}},
                         {" Vi\u1ec7c", {114195}},
                         {" soubor", {127539}},
                         {" hukuk", {119422}},
                         {" ye\u015fil", {126773}},
                         {" foto\u011fraf", {117072}},
                         {"你好，世界！", {57668, 53901, 3922, 102616, 6447}},
                         {"こんにちは、世界", {90115, 5486, 102616}},
                         {"안녕하세요", {101193, 124409}},
                         {"日本", {102433}},
                         {"👨\u200d👩\u200d👧\u200d👦",
                          {9468, 239, 101, 102470, 9468, 239, 102, 102470, 9468, 239, 100, 102470, 9468, 239, 99}},
                         {"🇺🇸", {9468, 229, 118, 9468, 229, 116}},
                         {"🏳\ufe0f\u200d🌈", {9468, 237, 111, 31643, 102470, 9468, 234, 230}},
                         {"🙂", {9468, 19044}},
                         {"\u00e9", {978}},
                         {"e\u0301", {68, 54939}},
                         {"Ⅳ½²", {71567, 96, 27154, 30556}},
                         {"²³", {30556, 44301}},
                         {"١٢٣", {109610, 110546, 117413}},
                         {"٣٤٥٦", {117413, 124079, 124043, 149, 99}},
                         {"१२३४", {105873, 108559, 114911, 121808}},
                         {"नमस्ते", {61196, 88344, 79468, 100365, 35470}},
                         {"مَرْحَبًا", {10386, 106524, 125902, 108117, 101333}},
                         {"\u00a0x", {4194, 87}},
                         {"\u200bx", {16067, 87}},
                         {"\ufeffabc", {3305, 13997}},
                         {"\ufffd", {5809}},
                         {"\ufb01", {171, 71831}},
                         {"<|eot_id|>", {128009}},
                         {"<|begin_of_text|>Hello", {128000, 9906}},
                         {"<0x0A>", {27, 15, 87, 15, 32, 29}}});
  ExpectIds(*tokenizer,
            {{"<|eot_id|>", {27, 91, 68, 354, 851, 91, 29}}, {"<|begin_of_text|>", {27, 91, 7413, 3659, 4424, 91, 29}}},
            {.parse_special = false});
  EXPECT_EQ(tokenizer->TokenBytes(102470), "\xE2\x80\x8D");
  EXPECT_EQ(tokenizer->TokenBytes(9468), "\xF0\x9F");
  EXPECT_EQ(tokenizer->TokenBytes(19044), "\x99\x82");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{9468, 234, 235}, false), "🌍");
  ASSERT_OK_AND_ASSIGN(const auto prompt, EncodePrompt(*tokenizer, "<|begin_of_text|>Hello", {.add_special = true}));
  EXPECT_EQ(prompt, (std::vector<int32_t>{128000, 9906}));
}

TEST_F(TokenizerIdsTest, Llama3WithoutIgnoreMerges) {
  std::string text = testing::TokenizerJsonText("llama3_1");
  const std::string on = "\"ignore_merges\": true", off = "\"ignore_merges\": false";
  size_t at = text.find(on);
  if (at == std::string::npos) {
    at = text.find("\"ignore_merges\":true");
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 20, "\"ignore_merges\":false");
  } else {
    text.replace(at, on.size(), off);
  }
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, TokenizerFromJson(text));
  ExpectIds(*tokenizer, {{" Vi\u1ec7t", {11655, 26298, 83}},
                         {" Vi\u1ec7c", {11655, 26298, 66}},
                         {" soubor", {274, 5599, 269}},
                         {" hukuk", {305, 3178, 3178}},
                         {" ye\u015fil", {20043, 7370, 321}},
                         {" foto\u011fraf", {26656, 11257, 15817}}});
}

TEST_F(TokenizerIdsTest, Mistral) {
  ExpectIds(*testing::SharedTokenizer("mistral_v1"),
            {{"", {}},
             {"Hello", {22557}},
             {"Hello world", {22557, 1526}},
             {" Hello world", {28705, 22557, 1526}},
             {"  Hello", {259, 22557}},
             {"This is 🦙.cpp", {851, 349, 28705, 243, 162, 169, 156, 28723, 5222}},
             {"a</s> b", {264, 2, 28705, 287}},
             {"</s> Hello", {2, 28705, 22557}},
             {"Hi</s>  two", {15359, 2, 259, 989}},
             {"<s> G", {1, 28705, 420}},
             {"\n", {28705, 13}},
             {" \n", {259, 13}},
             {"a\n\n\nb", {264, 13, 13, 13, 28726}},
             {"\n\n\n", {28705, 13, 13, 13}},
             {"\t\t", {28705, 12, 12}},
             {"a  b", {264, 28705, 287}},
             {"trailing  ", {27166, 259}},
             {"   ", {260}},
             {"3333", {28705, 28770, 28770, 28770, 28770}},
             {"1234567", {28705, 28740, 28750, 28770, 28781, 28782, 28784, 28787}},
             {"don't", {949, 28742, 28707}},
             {"DON'T", {384, 832, 28742, 28738}},
             {"\u00e9", {1233}},
             {"e\u0301", {317, 28949}},
             {"안녕하세요", {28705, 30325, 238, 136, 152, 29136, 29721, 29517}},
             {"👨\u200d👩\u200d👧\u200d👦", {28705, 243, 162, 148, 171, 29274, 243, 162, 148, 172,
                                         29274, 243, 162, 148, 170, 29274, 243, 162, 148, 169}},
             {"Ⅳ½²", {28705, 229, 136, 166, 29039, 28941}},
             {"١٢٣", {28705, 220, 164, 220, 165, 220, 166}},
             {std::string("a\0b", 3), {264, 3, 28726}},
             {"\ufb01", {28705, 30160}},
             {"\u00a0x", {28705, 29000, 28744}},
             {"\u3000x", {28705, 29351, 28744}},
             {"<0x0A>", {523, 28734, 28744, 28734, 28741, 28767}},
             {"user\n\nassistant", {2188, 13, 13, 489, 11143}}});
}

// C15: an algorithm of quadratic time takes minutes here. Plain decoding shows that nothing was lost.
TEST_F(TokenizerIdsTest, LongRuns) {
  for (const char* model : {"llama3_1", "qwen3", "deepseek_v3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = testing::SharedTokenizer(model);
    for (const std::string unit : {"x", "_", " ", "的", "\n", "A", "1", "e\u0301\u0316", "ab "}) {
      std::string text;
      while (text.size() < (512u << 10)) text += unit;
      ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode(text, {}));
      const std::string decoded = tokenizer->Decode(ids, true);
      if (std::string(model) == "qwen3" && unit.size() > 3) continue;  // It composes characters.
      EXPECT_TRUE(decoded == text) << model << " '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace baton
