// SPDX-License-Identifier: Apache-2.0
#include "common/text/token_decoder.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/unicode.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 8;

struct Builder {
  std::vector<TokenDecoder::Step> steps;
  LeadingRule rule;
  bool fused = false;  // The tokens are one string from here on.

  absl::Status Add(const json& value, const std::string& key, int depth);
  absl::Status AddStrip(const json& value, const std::string& key);
  absl::Status AddMetaspace(const json& value, const std::string& key);
};

absl::Status Builder::AddStrip(const json& value, const std::string& key) {
  BATON_ASSIGN_OR_RETURN(const std::string content, StringField(value, "content", "", key));
  BATON_ASSIGN_OR_RETURN(const int64_t start, IntField(value, "start", 0, key));
  BATON_ASSIGN_OR_RETURN(const int64_t stop, IntField(value, "stop", 0, key));
  if (start < 0 || start > 1000 || stop < 0 || stop > 1000) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": start ", start, ", stop ", stop, " not within 0..1000"));
  }
  if (!fused) {
    steps.push_back(TokenDecoder::Strip{content, static_cast<int>(start), static_cast<int>(stop)});
    return absl::OkStatus();
  }
  if (stop != 0) return absl::InvalidArgumentError(absl::StrCat(key, ": a Strip of the end after Fuse cannot stream"));
  if (start == 0) return absl::OkStatus();
  if (rule.kind != LeadingRule::Kind::kNone) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": a second Strip of the start"));
  }
  rule.kind = LeadingRule::Kind::kStrip;
  rule.content = content;
  rule.count = static_cast<int>(start);
  return absl::OkStatus();
}

absl::Status Builder::AddMetaspace(const json& value, const std::string& key) {
  BATON_ASSIGN_OR_RETURN(std::string replacement, StringField(value, "replacement", "\xE2\x96\x81", key));
  BATON_ASSIGN_OR_RETURN(const bool prefix, BoolField(value, "add_prefix_space", true, key));
  BATON_ASSIGN_OR_RETURN(const std::string scheme,
                         StringField(value, "prepend_scheme", prefix ? "always" : "never", key));
  steps.push_back(TokenDecoder::Metaspace{std::move(replacement)});
  if (scheme != "never") rule.kind = LeadingRule::Kind::kFirstToken;
  return absl::OkStatus();
}

absl::Status Builder::Add(const json& value, const std::string& key, int depth) {
  BATON_ASSIGN_OR_RETURN(const std::string type, StepType(value, key));
  if (type == "Sequence") {
    const auto list = value.find("decoders");
    if (list == value.end() || !list->is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".decoders: needs a list"));
    }
    if (depth >= kMaxNesting)
      return absl::InvalidArgumentError(absl::StrCat(key, ": nested deeper than ", kMaxNesting));
    for (size_t i = 0; i < list->size(); ++i) {
      BATON_RETURN_IF_ERROR(Add((*list)[i], absl::StrCat(key, ".decoders[", i, "]"), depth + 1));
    }
    return absl::OkStatus();
  }
  if (type == "Fuse") {
    fused = true;
    return absl::OkStatus();
  }
  if (type == "Strip") return AddStrip(value, key);
  if (type != "ByteLevel" && type != "ByteFallback" && type != "Replace" && type != "Metaspace") {
    return absl::InvalidArgumentError(absl::StrCat(key, ": unknown decoder type '", type, "'"));
  }
  if (fused) return absl::InvalidArgumentError(absl::StrCat(key, ": ", type, " after Fuse is not supported"));
  if (type == "ByteLevel") {
    steps.push_back(TokenDecoder::ByteLevel{});
    fused = true;
  } else if (type == "ByteFallback") {
    steps.push_back(TokenDecoder::ByteFallback{});
  } else if (type == "Metaspace") {
    return AddMetaspace(value, key);
  } else {
    BATON_ASSIGN_OR_RETURN(Pattern pattern,
                           Pattern::FromJson(value.value("pattern", json()), absl::StrCat(key, ".pattern")));
    BATON_ASSIGN_OR_RETURN(std::string content, StringField(value, "content", "", key));
    steps.push_back(TokenDecoder::Replace{std::move(pattern), std::move(content)});
  }
  return absl::OkStatus();
}

struct Applier {
  const std::string& token;

  absl::StatusOr<std::string> operator()(const TokenDecoder::ByteLevel&) const {
    return FromByteLevel(token).value_or(token);  // An added token may hold other characters.
  }
  absl::StatusOr<std::string> operator()(const TokenDecoder::ByteFallback&) const {
    const int byte = ByteTokenValue(token);
    return byte < 0 ? token : std::string(1, static_cast<char>(byte));
  }
  absl::StatusOr<std::string> operator()(const TokenDecoder::Replace& step) const {
    return step.pattern.ReplaceAll(token, step.content);
  }
  absl::StatusOr<std::string> operator()(const TokenDecoder::Strip& step) const {
    absl::string_view left = token;
    if (step.content.empty()) return token;
    for (int i = 0; i < step.start && absl::StartsWith(left, step.content); ++i)
      left.remove_prefix(step.content.size());
    for (int i = 0; i < step.stop && absl::EndsWith(left, step.content); ++i) left.remove_suffix(step.content.size());
    return std::string(left);
  }
  absl::StatusOr<std::string> operator()(const TokenDecoder::Metaspace& step) const {
    return absl::StrReplaceAll(token, {{step.replacement, " "}});
  }
};

}  // namespace

int ByteTokenValue(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    if (!absl::ascii_isxdigit(c)) return -1;
    value = value * 16 + (absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
  }
  return value;
}

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const json& value) {
  Builder builder;
  if (value.is_null()) {
    builder.rule.separator = " ";
  } else {
    BATON_RETURN_IF_ERROR(builder.Add(value, "decoder", 0));
  }
  return TokenDecoder(std::move(builder.steps), std::move(builder.rule));
}

absl::StatusOr<std::string> TokenDecoder::BytesOf(absl::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) {
    BATON_ASSIGN_OR_RETURN(bytes, std::visit(Applier{bytes}, step));
  }
  return bytes;
}

}  // namespace baton
