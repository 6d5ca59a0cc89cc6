// SPDX-License-Identifier: Apache-2.0
#include "common/text/text_bundle.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::StatusIs;

class TextBundleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::MakeTempFolder("text_bundle");
    Write("tokenizer.json", testing::TinyByteLevelJson().dump());
  }

  void Write(const std::string& name, const std::string& text) { std::ofstream(Path(name)) << text; }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void ExpectRefused(const std::string& file, const std::string& message) {
    EXPECT_THAT(LoadTextBundle(folder_),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(Path(file)), HasSubstr(message))));
  }

  std::string folder_;
};

TEST_F(TextBundleTest, TokenizerAlone) {
  for (const std::string& path : {folder_, folder_ + "/", Path("tokenizer.json")}) {
    ASSERT_OK_AND_ASSIGN(const TextBundle bundle, LoadTextBundle(path));
    EXPECT_EQ(bundle.tokenizer->vocab_size(), 303);
    EXPECT_FALSE(bundle.chat_template.has_value());
  }
}

// C12: generation_config's list, the tokenizer's own eos, or config.json's.
TEST_F(TextBundleTest, EndOfGeneration) {
  Write("tokenizer_config.json", R"({"eos_token": "<|end|>", "bos_token": {"content": "<|begin|>", "lstrip": false},
                                     "add_bos_token": true, "unk_token": null})");
  ASSERT_OK_AND_ASSIGN(TextBundle bundle, LoadTextBundle(folder_));
  EXPECT_EQ(bundle.tokenizer->special_tokens().end_of_generation, (std::vector<int32_t>{301}));
  EXPECT_EQ(bundle.template_tokens,
            (std::map<std::string, std::string>{{"bos_token", "<|begin|>"}, {"eos_token", "<|end|>"}}));
  Write("config.json", R"({"eos_token_id": 302})");
  ASSERT_OK_AND_ASSIGN(bundle, LoadTextBundle(folder_));
  EXPECT_EQ(bundle.tokenizer->special_tokens().end_of_generation, (std::vector<int32_t>{301, 302}));
  Write("generation_config.json", R"({"eos_token_id": [301, 300]})");
  ASSERT_OK_AND_ASSIGN(bundle, LoadTextBundle(folder_));
  EXPECT_EQ(bundle.tokenizer->special_tokens().end_of_generation, (std::vector<int32_t>{300, 301}));
  EXPECT_EQ(bundle.tokenizer->special_tokens().eos, 301);
}

TEST_F(TextBundleTest, ChatTemplates) {
  Write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(LoadTextBundle(folder_)->chat_template, "one");
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"},
                                                       {"name": "rag", "template": "r"}]})");
  ASSERT_OK_AND_ASSIGN(TextBundle bundle, LoadTextBundle(folder_));
  EXPECT_EQ(bundle.chat_template, "d");
  EXPECT_EQ(bundle.tool_chat_template, "t");
  Write("chat_template.jinja", "from its own file\n");
  ASSERT_OK_AND_ASSIGN(bundle, LoadTextBundle(folder_));
  EXPECT_EQ(bundle.chat_template, "from its own file\n");
}

TEST_F(TextBundleTest, Refusals) {
  EXPECT_THAT(LoadTextBundle(Path("nothing")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
  Write("tokenizer_config.json", R"({"eos_token": "<|gone|>"})");
  ExpectRefused("tokenizer.json", "eos_token '<|gone|>' is no token");
  Write("tokenizer_config.json", R"({"chat_template": 7})");
  ExpectRefused("tokenizer_config.json", "chat_template: needs a text");
  Write("tokenizer_config.json", "{");
  ExpectRefused("tokenizer_config.json", "byte");
  Write("tokenizer_config.json", std::string(100000, '['));  // C32.
  ExpectRefused("tokenizer_config.json", "");
  Write("tokenizer_config.json", "{}");
  Write("generation_config.json", R"({"eos_token_id": "two"})");
  ExpectRefused("generation_config.json", "eos_token_id");
  Write("generation_config.json", R"({"eos_token_id": [5000]})");
  ExpectRefused("tokenizer.json", "end of generation: id 5000 has no token");
  Write("generation_config.json", "{}");
  Write("tokenizer.json", "not json");
  ExpectRefused("tokenizer.json", "byte");
  Write("tokenizer.json", "");
  EXPECT_THAT(LoadTextBundle(folder_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json")));
  std::filesystem::remove(Path("tokenizer.json"));
  EXPECT_THAT(LoadTextBundle(folder_), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no tokenizer.json")));
  ASSERT_EQ(mkfifo(Path("tokenizer.json").c_str(), 0600), 0);
  EXPECT_THAT(LoadTextBundle(folder_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json")));
  Write("model.gguf", "GGUF");
  EXPECT_THAT(LoadTextBundle(Path("model.gguf")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.gguf")));
}

TEST_F(TextBundleTest, AModelWithoutATokenizerIsServedForTokenIds) {
  std::filesystem::remove(Path("tokenizer.json"));
  EXPECT_THAT(LoadModelText(folder_), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no tokenizer.json")));
  Write("config.json", R"({"eos_token_id": [7, 3, -1]})");
  ASSERT_OK_AND_ASSIGN(const TextBundle bundle, LoadModelText(folder_));
  EXPECT_EQ(bundle.no_text, "the model has no tokenizer.json");
  EXPECT_EQ(bundle.tokenizer->vocab_size(), 0);
  EXPECT_EQ(bundle.tokenizer->fingerprint(), "");
  EXPECT_EQ(bundle.tokenizer->Decode(std::vector<int32_t>{1, 2}, true), "");
  EXPECT_EQ(bundle.tokenizer->special_tokens().end_of_generation, (std::vector<int32_t>{3, 7}));
  EXPECT_THAT(bundle.tokenizer->Encode("a", {}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no tokenizer.json")));
  EXPECT_THAT(LoadTextBundle(folder_), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no tokenizer.json")));
  Write("tokenizer.json", "not json");  // One that is there is not passed over.
  EXPECT_THAT(LoadModelText(folder_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json")));
  Write("tokenizer.json", testing::TinyByteLevelJson().dump());
  std::filesystem::remove(Path("config.json"));
  ASSERT_OK_AND_ASSIGN(const TextBundle whole, LoadModelText(folder_));
  EXPECT_EQ(whole.no_text, "");
  EXPECT_EQ(whole.tokenizer->fingerprint(), LoadTextBundle(folder_)->tokenizer->fingerprint());
}

}  // namespace
}  // namespace baton
