// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/text/gguf_vocabulary.h"
#include "common/text/text_bundle.h"
#include "common/text/unicode.h"
#include "gtest/gtest.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using testing::IdsText;
using testing::StatusIs;

// Bytes 0..255, then "ab", and <|end|>, <|im_end|> (control), <think> (user-defined).
GgufVocabulary TinyBpe(const std::string& pre = "smollm") {
  GgufVocabulary out = {.model = "gpt2", .pre = pre};
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), &text);
    out.tokens.push_back(text);
  }
  out.tokens.insert(out.tokens.end(), {"ab", "<|end|>", "<|im_end|>", "<think>"});
  out.token_types.assign(out.tokens.size(), kGgufNormal);
  out.token_types[257] = out.token_types[258] = kGgufControl;
  out.token_types[259] = kGgufUserDefined;
  out.merges = {"a b"};
  out.bos = out.eos = 257;
  return out;
}

// <unk> <s> </s>, 256 byte tokens, then pieces by score.
GgufVocabulary TinySpm() {
  GgufVocabulary out = {.model = "llama"};
  out.tokens = {"<unk>", "<s>", "</s>"};
  out.token_types = {kGgufUnknown, kGgufControl, kGgufControl};
  out.scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    out.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    out.token_types.push_back(kGgufByte);
    out.scores.push_back(0);
  }
  for (const auto& [text, score] : std::vector<std::pair<const char*, float>>{
           {"\u2581", -100}, {"a", -101}, {"b", -102}, {"ab", -1}, {"\u2581a", -2}, {"\u2581ab", -3}, {"ba", -4}}) {
    out.tokens.push_back(text);
    out.token_types.push_back(kGgufNormal);
    out.scores.push_back(score);
  }
  out.bos = 1;
  out.eos = 2;
  return out;
}

void ExpectRefused(const GgufVocabulary& vocabulary, const std::string& message) {
  EXPECT_THAT(TokenizerFromGguf(vocabulary), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
}

TEST(GgufTokenizerTest, ByteLevel) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, TokenizerFromGguf(TinyBpe()));
  EXPECT_EQ(*tokenizer->Encode("ab<|end|>12<think>", {}), (std::vector<int32_t>{256, 257, '1', '2', 259}));
  EXPECT_EQ(*tokenizer->Encode("<think>", {.parse_special = false}), (std::vector<int32_t>{259}));
  EXPECT_EQ((*tokenizer->Encode("<|end|>", {.parse_special = false})).size(), 7u);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{256, 257, 0xC3, 0xA9}, false), "abé");
  EXPECT_EQ(tokenizer->special_tokens().end_of_generation, (std::vector<int32_t>{257, 258}));
  EXPECT_FALSE(tokenizer->special_tokens().adds_bos);
}

TEST(GgufTokenizerTest, SentencePieceByScores) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, TokenizerFromGguf(TinySpm()));
  EXPECT_EQ(*tokenizer->Encode("abab", {}), (std::vector<int32_t>{264, 262}));
  EXPECT_EQ(*tokenizer->Encode("a</s> b", {}), (std::vector<int32_t>{263, 2, 259, 259, 261}));
  EXPECT_EQ(*tokenizer->Encode("é", {}), (std::vector<int32_t>{259, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(*tokenizer->Encode("a", {.add_special = true}), (std::vector<int32_t>{1, 263}));
  EXPECT_EQ(*EncodePrompt(*tokenizer, "<s>a", {.add_special = true}), (std::vector<int32_t>{1, 263}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, 263, 264}, false), "a ab");
  GgufVocabulary plain = TinySpm();
  plain.add_space_prefix = false;
  ASSERT_OK_AND_ASSIGN(const auto without_prefix, TokenizerFromGguf(plain));
  EXPECT_EQ(*without_prefix->Encode("ab", {}), (std::vector<int32_t>{262}));
  EXPECT_EQ(without_prefix->Decode(std::vector<int32_t>{263}, false), " a");
}

TEST(GgufTokenizerTest, PreTokenizers) {
  for (const char* name : {"smollm", "llama-bpe", "qwen2", "deepseek-v3", "default", "", "gpt-2", "gpt-4o", "tekken",
                           "falcon", "starcoder", "dbrx", "stablelm2", "command-r", "chatglm-bpe"}) {
    EXPECT_TRUE(FindGgufPreTokenizer(name).ok()) << name;
  }
  EXPECT_TRUE(FindGgufPreTokenizer("llama-bpe")->ignore_merges);
  for (const char* name : {"newmodel", "llama", "gpt-2 phi-2", " "}) {
    ExpectRefused(TinyBpe(name), std::string("unknown pre-tokenizer '") + name + "'");
  }
  // smollm takes digits one by one, qwen2 as well, llama-bpe in threes; qwen2 composes.
  GgufVocabulary digits = TinyBpe("llama-bpe");
  digits.tokens.push_back("12");
  digits.token_types.push_back(kGgufNormal);
  digits.merges.push_back("1 2");
  EXPECT_EQ(*(*TokenizerFromGguf(digits))->Encode("12", {}), (std::vector<int32_t>{260}));
  digits.pre = "smollm";
  EXPECT_EQ(*(*TokenizerFromGguf(digits))->Encode("12", {}), (std::vector<int32_t>{'1', '2'}));
  digits.pre = "qwen2";
  EXPECT_EQ(*(*TokenizerFromGguf(digits))->Encode("e\u0301", {}), (std::vector<int32_t>{0xC3, 0xA9}));
}

TEST(GgufTokenizerTest, Refusals) {
  GgufVocabulary bad = TinyBpe();
  bad.model = "bert";
  ExpectRefused(bad, "unknown tokenizer model 'bert'");
  bad = TinyBpe();
  bad.merges.push_back("a zz");
  ExpectRefused(bad, "tokenizer.ggml.merges[1] ('a' + 'zz'): 'zz' is no token");
  bad = TinyBpe();
  bad.merges.push_back("");
  ExpectRefused(bad, "tokenizer.ggml.merges[1]");
  bad = TinyBpe();
  bad.token_types.pop_back();
  ExpectRefused(bad, "tokenizer.ggml.token_type: 259 entries, but tokenizer.ggml.tokens has 260");
  bad = TinyBpe();
  bad.tokens[5] = "ab";
  ExpectRefused(bad, "tokenizer.ggml.tokens: token 'ab' occurs twice, as id 5 and id 256");
  bad = TinyBpe();
  bad.tokens[5] = "\xFF";
  ExpectRefused(bad, "tokenizer.ggml.tokens[5]: invalid UTF-8");
  for (const int64_t id : {int64_t{260}, int64_t{-1}, int64_t{1} << 40}) {
    bad = TinyBpe();
    bad.eos = id;
    ExpectRefused(bad, "tokenizer.ggml.eos_token_id: id ");
  }
  bad = TinySpm();
  bad.scores.pop_back();
  ExpectRefused(bad, "tokenizer.ggml.scores: 265 entries");
  bad = TinySpm();
  bad.scores.clear();
  ExpectRefused(bad, "tokenizer.ggml.scores: missing");
  bad = TinySpm();
  bad.unk = 999;
  ExpectRefused(bad, "tokenizer.ggml.unknown_token_id: id 999");
  bad = TinySpm();
  bad.token_types[3 + 7] = kGgufNormal;
  bad.token_types[0] = kGgufControl;
  ExpectRefused(bad, "neither all 256 byte tokens");
  bad = TinyBpe();
  bad.bos.reset();
  bad.add_bos = true;
  ExpectRefused(bad, "add_bos_token is true without bos_token_id");
  ExpectRefused({.model = "gpt2", .pre = "smollm"}, "tokenizer.ggml.tokens: no tokens");
}

// The prompts of the golden file, from the real model file.
TEST(GgufTokenizerTest, SmolLm2) {
  const char* from_environment = std::getenv("BATON_MODEL");
  const char* home = std::getenv("HOME");
  const std::string path = from_environment != nullptr ? from_environment
                                                       : std::string(home != nullptr ? home : "") +
                                                             "/.cache/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (testing::ReadWholeFile(path).empty()) GTEST_SKIP() << "no model file " << path;
  ASSERT_OK_AND_ASSIGN(const TextBundle bundle, LoadTextBundle(path));
  EXPECT_EQ(bundle.tokenizer->fingerprint().substr(0, 5), "gguf-");
  EXPECT_EQ(bundle.tokenizer->vocab_size(), 49152);
  EXPECT_EQ(bundle.template_tokens.at("eos_token"), "<|im_end|>");
  ASSERT_TRUE(bundle.chat_template.has_value());
  if (!testing::SharedExists("golden/smollm2.json")) GTEST_SKIP() << "no golden values beside the tree";
  const auto golden = nlohmann::json::parse(testing::ReadWholeFile(testing::SharedPath("golden/smollm2.json")));
  for (const auto& entry : golden.contains("cases") ? golden["cases"] : golden) {
    const std::string text = entry["text"];
    const std::vector<int32_t> wanted = entry["prompt_ids"];
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, bundle.tokenizer->Encode(text, {}));
    EXPECT_EQ(IdsText(ids), IdsText(wanted)) << text;
    EXPECT_EQ(bundle.tokenizer->Decode(ids, true), text);
  }
}

TEST(GgufTokenizer, AFileWithoutOneIsServedForTokenIds) {
  testing::GgufWriter writer;
  writer.SetString("general.architecture", "llama").SetU32("tokenizer.ggml.eos_token_id", 5);
  for (const char* model : {"", "none", "no_vocab"}) {
    if (*model != 0) writer.SetString("tokenizer.ggml.model", model);
    const std::string file = testing::WriteTempFile("none.gguf", writer.Build());
    ASSERT_OK_AND_ASSIGN(const TextBundle bundle, LoadModelText(file));
    EXPECT_EQ(bundle.no_text, "the model's GGUF file has no tokenizer");
    EXPECT_EQ(bundle.tokenizer->special_tokens().end_of_generation, std::vector<int32_t>{5});
  }
  writer.SetString("tokenizer.ggml.model", "bert");
  EXPECT_FALSE(LoadModelText(testing::WriteTempFile("bert.gguf", writer.Build())).ok());
}

}  // namespace
}  // namespace baton
