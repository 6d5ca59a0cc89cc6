// SPDX-License-Identifier: Apache-2.0
#include "common/text/tokenizer_json.h"

#include <random>
#include <string>
#include <vector>

#include "common/text/pipeline_tokenizer.h"
#include "common/text/unicode.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IdsText;
using testing::StatusIs;

std::unique_ptr<const Tokenizer> Make(const json& file, const TokenRoles& roles = {}) {
  auto tokenizer = TokenizerFromJson(file.dump(), roles);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, absl::string_view text, EncodeOptions options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

void ExpectRefused(const json& file, const std::string& message) {
  EXPECT_THAT(TokenizerFromJson(file.dump()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
}

TEST(TokenizerJsonTest, MergesByRank) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  EXPECT_EQ(Ids(*tokenizer, "hello world"), (std::vector<int32_t>{259, 264}));
  EXPECT_EQ(Ids(*tokenizer, "aaaaa"), (std::vector<int32_t>{266, 'a'}));
  EXPECT_EQ(Ids(*tokenizer, ""), std::vector<int32_t>{});
  EXPECT_EQ(tokenizer->vocab_size(), 303);
}

TEST(TokenizerJsonTest, SpecialTokens) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  EXPECT_EQ(Ids(*tokenizer, "a<|end|>a<think>"), (std::vector<int32_t>{'a', 301, 'a', 302}));
  EXPECT_EQ(Ids(*tokenizer, "<|end|>", {.parse_special = false}),
            (std::vector<int32_t>{'<', '|', 'e', 'n', 'd', '|', '>'}));
  EXPECT_EQ(Ids(*tokenizer, "<think>", {.parse_special = false}), (std::vector<int32_t>{302}));
  EXPECT_EQ(Ids(*tokenizer, "a", {.add_special = true}), (std::vector<int32_t>{300, 'a'}));
}

// C11.
TEST(TokenizerJsonTest, OneBeginTokenInPrompts) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  EXPECT_EQ(Ids(*tokenizer, "<|begin|>a", {.add_special = true}), (std::vector<int32_t>{300, 300, 'a'}));
  EXPECT_EQ(*EncodePrompt(*tokenizer, "<|begin|>a", {.add_special = true}), (std::vector<int32_t>{300, 'a'}));
  EXPECT_EQ(*EncodePrompt(*tokenizer, "a", {.add_special = true}), (std::vector<int32_t>{300, 'a'}));
  EXPECT_EQ(*EncodePrompt(*tokenizer, "<|begin|>a", {}), (std::vector<int32_t>{300, 'a'}));
  EXPECT_EQ(*EncodePrompt(*tokenizer, "", {.add_special = true}), (std::vector<int32_t>{300}));
}

TEST(TokenizerJsonTest, AddedTokenFlags) {
  json file = testing::TinyByteLevelJson();
  file["added_tokens"].push_back({{"id", 310}, {"content", "[L]"}, {"lstrip", true}, {"normalized", false}});
  file["added_tokens"].push_back({{"id", 311}, {"content", "[R]"}, {"rstrip", true}, {"normalized", false}});
  file["added_tokens"].push_back({{"id", 312}, {"content", "qq"}, {"single_word", true}, {"normalized", false}});
  file["added_tokens"].push_back({{"id", 313}, {"content", "[R]]"}, {"normalized", false}});
  file["added_tokens"].push_back({{"id", 314}, {"content", "[UP]"}, {"normalized", true}});
  file["normalizer"] = {{"type", "Lowercase"}};
  const auto tokenizer = Make(file);
  EXPECT_EQ(Ids(*tokenizer, "x \u3000[L] x"), (std::vector<int32_t>{'x', 310, ' ', 'x'}));
  EXPECT_EQ(Ids(*tokenizer, "x [R]  x"), (std::vector<int32_t>{'x', ' ', 311, 'x'}));
  EXPECT_EQ(Ids(*tokenizer, "[R] [L]x"), (std::vector<int32_t>{311, 310, 'x'}));
  EXPECT_EQ(Ids(*tokenizer, "[R]]x"), (std::vector<int32_t>{313, 'x'}));  // The longest.
  EXPECT_EQ(Ids(*tokenizer, "qq-qq"), (std::vector<int32_t>{312, '-', 312}));
  EXPECT_EQ(Ids(*tokenizer, "qqb"), (std::vector<int32_t>{'q', 'q', 'b'}));
  EXPECT_EQ(Ids(*tokenizer, "X[Up]"), (std::vector<int32_t>{'x', 314}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{310, 314}, true), "[L][up]");
}

TEST(TokenizerJsonTest, IgnoreMergesAndUnknownCharacters) {
  json file = testing::TinyByteLevelJson();
  file["model"]["vocab"]["xyz"] = 290;
  EXPECT_EQ(Ids(*Make(file), "xyz"), (std::vector<int32_t>{'x', 'y', 'z'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(Ids(*Make(file), "xyz"), (std::vector<int32_t>{290}));

  json spm = testing::TinySpmJson();
  const auto fallback = Make(spm);
  EXPECT_EQ(Ids(*fallback, "é"), (std::vector<int32_t>{259, 3 + 0xC3, 3 + 0xA9}));  // C03: byte tokens are 3 + byte.
  EXPECT_EQ(Ids(*fallback, "a</s> b"),
            (std::vector<int32_t>{*fallback->FindToken("\u2581a"), 2, *fallback->FindToken("\u2581\u2581"),
                                  *fallback->FindToken("b")}));
  EXPECT_EQ(Ids(*fallback, ""), std::vector<int32_t>{});
  spm["model"]["byte_fallback"] = false;
  EXPECT_EQ(Ids(*Make(spm), "éèx"), (std::vector<int32_t>{259, 0, *fallback->FindToken("x")}));
  spm["model"]["fuse_unk"] = false;
  EXPECT_EQ(Ids(*Make(spm), "éèx"), (std::vector<int32_t>{259, 0, 0, *fallback->FindToken("x")}));
  spm["model"]["unk_token"] = nullptr;
  EXPECT_EQ(Ids(*Make(spm), "éx"), (std::vector<int32_t>{*fallback->FindToken("\u2581x")}));
}

TEST(TokenizerJsonTest, InvalidTextNamesTheByte) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  EXPECT_THAT(tokenizer->Encode("ab\xFF", {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 2")));
  EXPECT_EQ(Ids(*tokenizer, absl::string_view("a\0b", 3)), (std::vector<int32_t>{'a', 0, 'b'}));
}

// C14, and every other kind of step.
TEST(TokenizerJsonTest, UnknownStepsAreRefusedByName) {
  const json good = testing::TinyByteLevelJson();
  json file = good;
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Wordy"}}}}};
  ExpectRefused(file, "pre_tokenizer.pretokenizers[0]: unknown pre-tokenizer type 'Wordy'");
  file = good;
  file["normalizer"] = {{"type", "Precompiled"}};
  ExpectRefused(file, "normalizer: unknown normalizer type 'Precompiled'");
  file = good;
  file["decoder"] = {{"type", "CTC"}};
  ExpectRefused(file, "decoder: unknown decoder type 'CTC'");
  file = good;
  file["post_processor"] = {{"type", "Other"}};
  ExpectRefused(file, "post_processor: unknown post-processor type 'Other'");
  file = good;
  file["model"]["type"] = "WordPiece";
  ExpectRefused(file, "model: unknown model type 'WordPiece'");
  file = good;
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
  ExpectRefused(file, "pre_tokenizer.pattern: pattern '('");
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}, {"behavior", "Sideways"}};
  ExpectRefused(file, "unknown behavior 'Sideways'");
  file = good;
  file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}}};
  ExpectRefused(file, "decoder.decoders[1]: ByteFallback after Fuse");
}

TEST(TokenizerJsonTest, BadVocabulariesAreRefusedByPlace) {
  const json good = testing::TinyByteLevelJson();
  json file = good;
  file["model"]["merges"].push_back("q zz");
  ExpectRefused(file, "model.merges[12] ('q' + 'zz'): 'zz' is no token");
  file = good;
  file["model"]["merges"].push_back("abc");
  ExpectRefused(file, "model.merges[12]: 'abc' is not two texts");
  file = good;
  file["model"]["merges"] = json::array({json::array({"a"})});
  ExpectRefused(file, "model.merges[0]: needs two texts");
  file = good;
  file["model"]["vocab"]["new"] = 7;
  ExpectRefused(file, "model.vocab: id 7 belongs to both");
  file = good;
  file["model"]["vocab"]["new"] = -1;
  ExpectRefused(file, "token 'new' has id -1");
  file["model"]["vocab"]["new"] = int64_t{1} << 40;
  ExpectRefused(file, "token 'new' has id 1099511627776");
  file["model"]["vocab"]["new"] = "x";
  ExpectRefused(file, "model.vocab['new']: value of the wrong type");
  file = good;
  file["model"]["vocab"] = json::array({json::array({"a", -1.5})});
  ExpectRefused(file, "model.vocab: a list");
  file = good;
  file["added_tokens"][0]["id"] = 301;
  ExpectRefused(file, "added_tokens[");
  file = good;
  file["added_tokens"][0]["id"] = 5000000;
  ExpectRefused(file, "added_tokens[0].id: 5000000");
  file = good;
  file["added_tokens"][0]["content"] = "hello";  // In the vocabulary as 259.
  ExpectRefused(file, "the vocabulary has it as id 259");
  file = good;
  file["post_processor"]["special_tokens"]["<|begin|>"]["ids"] = {2999};
  ExpectRefused(file, "begin of text: id 2999 has no token");
  for (const json& entry : {json(5), json("x"), json::array(), json(), json::object()}) {
    file["post_processor"]["special_tokens"]["<|begin|>"] = entry;
    ExpectRefused(file, "special_tokens: no ids for '<|begin|>'");
  }
  file = good;
  file["model"]["unk_token"] = "nope";
  ExpectRefused(file, "unk_token 'nope' is no token");
  EXPECT_THAT(TokenizerFromJson(good.dump(), {.bos = "nope"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bos_token 'nope'")));
}

TEST(TokenizerJsonTest, TheSameTokenTwice) {
  std::string text = testing::TinyByteLevelJson().dump();
  text.insert(text.find("\"vocab\":{") + 9, "\"a\":299,");
  EXPECT_THAT(TokenizerFromJson(text),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token 'a' occurs twice")));
}

TEST(TokenizerJsonTest, MalformedAndHostileFiles) {
  EXPECT_THAT(TokenizerFromJson("{\"model\":"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte")));
  EXPECT_THAT(TokenizerFromJson("[]"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs an object")));
  EXPECT_THAT(TokenizerFromJson("{}"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  EXPECT_THAT(TokenizerFromJson(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  for (const char* open : {"[", "{\"normalizer\":", "{\"model\":{\"vocab\":{\"a\":", "{\"model\":{\"merges\":[["}) {
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += open;
    EXPECT_THAT(TokenizerFromJson(deep), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(""))) << open;
  }
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 12; ++i) nested = {{"type", "Sequence"}, {"normalizers", json::array({nested})}};
  json file = testing::TinyByteLevelJson();
  file["normalizer"] = nested;
  ExpectRefused(file, "nested deeper than");
}

TEST(TokenizerJsonTest, RolesOfTokens) {
  const auto by_name = Make(testing::TinyByteLevelJson());
  EXPECT_EQ(by_name->special_tokens().bos, 300);
  EXPECT_TRUE(by_name->special_tokens().adds_bos);
  const auto tokenizer =
      Make(testing::TinyByteLevelJson(), {.bos = "<|begin|>", .eos = "<|end|>", .end_of_generation = {302, 301}});
  EXPECT_EQ(tokenizer->special_tokens().eos, 301);
  EXPECT_EQ(tokenizer->special_tokens().end_of_generation, (std::vector<int32_t>{301, 302}));
  json file = testing::TinyByteLevelJson();
  file["added_tokens"][1]["content"] = "<|im_end|>";
  EXPECT_EQ(Make(file)->special_tokens().end_of_generation, (std::vector<int32_t>{301}));
}

TEST(TokenizerJsonTest, FingerprintsTellTokenizersApart) {
  json file = testing::TinyByteLevelJson();
  const std::string first = Make(file)->fingerprint();
  EXPECT_EQ(first.substr(0, 5), "json-");
  EXPECT_EQ(first.size(), 5u + 16u);
  EXPECT_EQ(Make(file)->fingerprint(), first);
  std::swap(file["model"]["merges"][0], file["model"]["merges"][1]);
  EXPECT_NE(Make(file)->fingerprint(), first);
  file = testing::TinyByteLevelJson();
  file["pre_tokenizer"]["use_regex"] = false;
  EXPECT_NE(Make(file)->fingerprint(), first);
}

// Byte-level BPE loses nothing: random texts and random splits of them into special and plain come back.
TEST(TokenizerJsonTest, RandomTextsComeBack) {
  const auto tokenizer = Make(testing::TinyByteLevelJson());
  const uint32_t seed = 5;
  std::mt19937 rng(seed);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = rng() % 30; i >= 0; --i) {
      switch (rng() % 5) {
        case 0:
          text += "hello world";
          break;
        case 1:
          text.push_back(static_cast<char>(rng() % 128));
          break;
        case 2:
          text += rng() % 2 == 0 ? "<|end|>" : "  ";
          break;
        default: {
          char32_t c = rng() % 0x11000;
          if (c >= 0xD800 && c < 0xE000) c = 0x1F30D;
          AppendUtf8(c, &text);
        }
      }
    }
    EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, text), /*keep_special=*/true), text)
        << "seed " << seed << " round " << round;
  }
}

}  // namespace
}  // namespace baton
