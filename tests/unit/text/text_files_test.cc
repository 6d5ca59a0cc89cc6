// SPDX-License-Identifier: Apache-2.0
#include "common/text/text_files.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "common/text/text_bundle.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

// What is told of the model at `path` says what the model says itself.
void ExpectTheSame(const std::string& path, size_t most_bytes) {
  ASSERT_OK_AND_ASSIGN(const std::vector<TextFile> files, ReadTextFiles(path));
  size_t bytes = 0;
  for (const TextFile& file : files) bytes += file.bytes.size();
  EXPECT_LT(bytes, most_bytes);
  ASSERT_OK_AND_ASSIGN(const std::string copy, WriteTextFiles(files, testing::MakeTempFolder("copy")));
  ASSERT_OK_AND_ASSIGN(const TextBundle model, LoadModelText(path));
  ASSERT_OK_AND_ASSIGN(const TextBundle told, LoadModelText(copy));
  EXPECT_EQ(told.tokenizer->fingerprint(), model.tokenizer->fingerprint());
  EXPECT_EQ(told.tokenizer->vocab_size(), model.tokenizer->vocab_size());
  EXPECT_EQ(told.tokenizer->special_tokens().end_of_generation, model.tokenizer->special_tokens().end_of_generation);
  EXPECT_EQ(told.chat_template, model.chat_template);
  EXPECT_EQ(told.tool_chat_template, model.tool_chat_template);
  EXPECT_EQ(told.template_tokens, model.template_tokens);
  EXPECT_EQ(told.no_text, model.no_text);
}

TEST(TextFilesTest, OfAGgufFileOnlyTheTokenizerIsTold) {
  testing::GgufWriter writer = testing::TinyModel();
  ExpectTheSame(testing::WriteTempFile("tiny.gguf", writer.Build()), 64 << 10);
}

TEST(TextFilesTest, OfAFolderTheSmallFilesAre) {
  const std::string folder = testing::MakeTempFolder("model");
  const auto write = [&](const std::string& name, const std::string& text) { std::ofstream(folder + "/" + name) << text; };
  write("tokenizer.json", testing::TinyByteLevelJson().dump());
  write("tokenizer_config.json", R"({"eos_token": "<|end|>", "chat_template": "{{ messages }}"})");
  write("generation_config.json", R"({"eos_token_id": [301, 300]})");
  write("model.safetensors", std::string(1 << 20, 'w'));
  ExpectTheSame(folder, 64 << 10);
  ExpectTheSame(folder + "/tokenizer.json", 64 << 10);
  write("chat_template.jinja", "{{ bos_token }}");
  ExpectTheSame(folder, 64 << 10);
  std::filesystem::remove(folder + "/tokenizer.json");
  write("config.json", R"({"eos_token_id": 302})");
  ExpectTheSame(folder, 64 << 10);  // Of a model without a tokenizer it is told that there is none.
}

TEST(TextFilesTest, WhatIsNoModelIsRefused) {
  EXPECT_THAT(ReadTextFiles("/nowhere/model.gguf"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/model.gguf")));
  EXPECT_THAT(ReadTextFiles(testing::MakeTempFolder("empty")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("tokenizer.json")));
}

TEST(TextFilesTest, NothingLeavesTheFolder) {
  const std::string folder = testing::MakeTempFolder("in");
  for (const std::string name : {"../x", "/tmp/x", "", ".", "tokenizer.json/x", "other.txt", "TOKENIZER.JSON"}) {
    EXPECT_THAT(WriteTextFiles({{"tokenizer.json", "{}"}, {name, "x"}}, folder), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another name"))) << name;
  }
  EXPECT_THAT(WriteTextFiles({{"config.json", "{}"}, {"config.json", "{}"}}, folder),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  for (const std::vector<TextFile>& files : {std::vector<TextFile>{}, {{"generation_config.json", "{}"}}, {{"model.gguf", ""}, {"config.json", "{}"}}}) {
    EXPECT_THAT(WriteTextFiles(files, folder), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not those of one model")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_THAT(WriteTextFiles({{"config.json", "{}"}}, folder + "/missing"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/missing/config.json")));
}

}  // namespace
}  // namespace baton
