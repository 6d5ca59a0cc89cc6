// SPDX-License-Identifier: Apache-2.0
// Published tokenizers give exactly the ids and texts of the `tokenizers` library, from tokenizer.json and from the
// same vocabulary as a GGUF file has it.
#include <string>
#include <vector>

#include "common/text/detokenizer.h"
#include "common/text/gguf_vocabulary.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer_json.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using testing::AsGguf;
using testing::ExpectedTexts;
using testing::IdsText;
using testing::SharedTokenizer;

void ExpectAllEqual(const Tokenizer& tokenizer, const std::string& model) {
  ASSERT_TRUE(ExpectedTexts().contains(model));
  int num_cases = 0;
  for (const auto& entry : ExpectedTexts()[model]["encodings"]) {
    const std::string text = entry["text"];
    const std::vector<int32_t> ids = entry["ids"], with_special = entry["ids_with_special"];
    SCOPED_TRACE(model + ": '" + text + "'");
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> got, tokenizer.Encode(text, {}));
    EXPECT_EQ(IdsText(got), IdsText(ids));
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> got_special, tokenizer.Encode(text, {.add_special = true}));
    EXPECT_EQ(IdsText(got_special), IdsText(with_special));
    EXPECT_EQ(tokenizer.Decode(ids, /*keep_special=*/true), entry["decoded"].get<std::string>());
    ++num_cases;
  }
  EXPECT_GT(num_cases, 50);
}

class ExpectedTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!testing::SharedExists("tokenizers/expected.json.xz"))
      GTEST_SKIP() << "no published tokenizers beside the tree";
  }
};

TEST_P(ExpectedTest, FromTokenizerJson) { ExpectAllEqual(*SharedTokenizer(GetParam()), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, ExpectedTest,
                         ::testing::Values("deepseek_v3", "gemma3", "llama3_1", "mistral_v1", "qwen3"),
                         [](const auto& info) { return info.param; });

TEST_P(ExpectedTest, FromGguf) {
  const std::string model = GetParam();
  GgufVocabulary vocabulary;
  if (model == "llama3_1") vocabulary = AsGguf(model, "gpt2", "llama-bpe", "<|begin_of_text|>");
  if (model == "qwen3") vocabulary = AsGguf(model, "gpt2", "qwen2", "");
  if (model == "deepseek_v3") vocabulary = AsGguf(model, "gpt2", "deepseek-v3", "");
  if (model == "mistral_v1") vocabulary = AsGguf(model, "llama", "", "<s>");
  if (model == "gemma3") {
    vocabulary = AsGguf(model, "llama", "", "<bos>");
    vocabulary.add_space_prefix = false;
  }
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, TokenizerFromGguf(vocabulary));
  ExpectAllEqual(*tokenizer, model);
}

// Whatever the text is cut into, the pieces of a stream make up the whole.
TEST_P(ExpectedTest, StreamsAreTheWhole) {
  const auto tokenizer = SharedTokenizer(GetParam());
  for (const auto& entry : ExpectedTexts()[GetParam()]["encodings"]) {
    Detokenizer detokenizer(tokenizer.get(), /*keep_special=*/true);
    std::string text;
    for (const int32_t id : entry["ids"].get<std::vector<int32_t>>()) {
      const std::string part = detokenizer.Push(id);
      EXPECT_EQ(part.find("\xEF\xBF\xBD"), std::string::npos);
      text += part;
    }
    text += detokenizer.Finish();
    EXPECT_EQ(text, entry["decoded"].get<std::string>());
  }
}

}  // namespace
}  // namespace baton
