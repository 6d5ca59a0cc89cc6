// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/text/text_test_files.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/logging.h"
#include "common/text/tokenizer_json.h"
#include "common/text/unicode.h"
#include "tests/support/paths.h"

namespace baton::testing {

using nlohmann::json;

std::string SharedPath(const std::string& name) { return SourcePath("../shared/" + name); }

bool SharedExists(const std::string& name) { return std::ifstream(SharedPath(name)).good(); }

std::string ReadXz(const std::string& path) {
  std::string text;
  FILE* pipe = popen(absl::StrCat("xz -dc '", path, "' 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[65536];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

const nlohmann::ordered_json& ExpectedTexts() {
  static const auto* expected = new nlohmann::ordered_json(
      nlohmann::ordered_json::parse(ReadXz(SharedPath("tokenizers/expected.json.xz")), nullptr, false));
  return *expected;
}

std::string TokenizerJsonText(const std::string& model) {
  return ReadXz(SharedPath(absl::StrCat("tokenizers/", model, "/tokenizer.json.xz")));
}

json TokenizerConfig(const std::string& model) {
  return json::parse(ReadXz(SharedPath(absl::StrCat("tokenizers/", model, "/tokenizer_config.json.xz"))), nullptr,
                     false);
}

std::shared_ptr<const Tokenizer> SharedTokenizer(const std::string& model) {
  static auto* loaded = new std::map<std::string, std::shared_ptr<const Tokenizer>>;
  auto& tokenizer = (*loaded)[model];
  if (tokenizer == nullptr) {
    auto made = TokenizerFromJson(TokenizerJsonText(model));
    BATON_CHECK(made.ok()) << model << ": " << made.status().ToString();
    tokenizer = *std::move(made);
  }
  return tokenizer;
}

GgufVocabulary AsGguf(const std::string& model, const std::string& ggml_model, const std::string& pre,
                      const std::string& bos) {
  auto file = ReadTokenizerJson(TokenizerJsonText(model));
  BATON_CHECK(file.ok()) << file.status().ToString();
  GgufVocabulary out = {.model = ggml_model, .pre = pre};
  const auto put = [&out](size_t id, const std::string& text, int32_t type) {
    if (out.tokens.size() <= id) {
      out.tokens.resize(id + 1);
      out.token_types.resize(id + 1, kGgufUnused);
    }
    out.tokens[id] = text;
    out.token_types[id] = type;
    if (text == "<unk>") out.unk = static_cast<int64_t>(id);
  };
  const bool scored = ggml_model == "llama";
  for (const auto& entry : file->vocabulary) {
    const bool is_byte = scored && entry.text.size() == 6 && entry.text.compare(0, 3, "<0x") == 0;
    put(static_cast<size_t>(entry.id), entry.text, is_byte ? kGgufByte : kGgufNormal);
  }
  for (const json& token : file->rest["added_tokens"]) {
    const std::string content = token["content"];
    put(token["id"], content, !token["special"] ? kGgufUserDefined : content == "<unk>" ? kGgufUnknown : kGgufControl);
    if (content == bos) out.bos = token["id"].get<int64_t>();
  }
  out.add_bos = out.bos.has_value();
  if (scored) {
    // A piece's score falls with the rank of the first merge that makes it.
    out.scores.resize(out.tokens.size(), -1e9f);
    std::map<std::string, size_t> ids;
    for (size_t id = 0; id < out.tokens.size(); ++id) ids[out.tokens[id]] = id;
    for (size_t rank = file->merges.size(); rank-- > 0;) {
      out.scores[ids[file->merges[rank].first + file->merges[rank].second]] = -static_cast<float>(rank);
    }
  } else {
    for (const auto& [left, right] : file->merges) out.merges.push_back(absl::StrCat(left, " ", right));
  }
  return out;
}

json TinyByteLevelJson() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), &text);
    vocab[text] = byte;
  }
  json merges = json::array();
  int id = 256;
  // Ġ is the space.
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"h", "e"},
                                                                                    {"l", "l"},
                                                                                    {"he", "ll"},
                                                                                    {"hell", "o"},
                                                                                    {"\u0120", "w"},
                                                                                    {"o", "r"},
                                                                                    {"\u0120w", "or"},
                                                                                    {"l", "d"},
                                                                                    {"\u0120wor", "ld"},
                                                                                    {"a", "a"},
                                                                                    {"aa", "aa"},
                                                                                    {"\u0120", "\u0120"}}) {
    vocab[left + right] = id++;
    merges.push_back(left + " " + right);
  }
  const auto added = [](int token_id, const char* content, bool special) {
    return json{{"id", token_id},  {"content", content}, {"special", special},  {"normalized", false},
                {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
  };
  return {
      {"added_tokens", {added(300, "<|begin|>", true), added(301, "<|end|>", true), added(302, "<think>", false)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<|begin|>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens", {{"<|begin|>", {{"id", "<|begin|>"}, {"ids", {300}}, {"tokens", {"<|begin|>"}}}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

json TinySpmJson() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  int id = 3;
  for (int byte = 0; byte < 256; ++byte) vocab[absl::StrFormat("<0x%02X>", byte)] = id++;
  const std::string mark = "\xE2\x96\x81";
  for (const std::string& text : {mark, std::string("a"), std::string("b"), std::string("x"), std::string("."),
                                  std::string("l"), std::string("e"), mark + mark, mark + mark + mark + mark,
                                  mark + "x", mark + "a", mark + "b", std::string("ab"), mark + "ab"}) {
    vocab[text] = id++;
  }
  json merges = json::array();
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {mark, mark}, {mark + mark, mark + mark}, {"a", "b"}, {mark, "x"}, {mark, "a"}, {mark, "b"}, {mark, "ab"}}) {
    merges.push_back(json::array({left, right}));
  }
  json added = json::array();
  for (const auto& [text, token] : std::vector<std::pair<const char*, int>>{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}}) {
    added.push_back({{"id", token}, {"content", text}, {"special", true}, {"normalized", false}});
  }
  return {{"added_tokens", added},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", mark}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", merges}}}};
}

std::string IdsText(const std::vector<int32_t>& ids) { return absl::StrCat("[", absl::StrJoin(ids, ","), "]"); }

}  // namespace baton::testing
