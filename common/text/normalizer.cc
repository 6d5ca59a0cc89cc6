// SPDX-License-Identifier: Apache-2.0
#include "common/text/normalizer.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace baton {
namespace {

using nlohmann::json;
using Step = Normalizer::Step;

// Sequences in sequences; real files have one level.
constexpr int kMaxNesting = 8;

absl::Status AppendSteps(const json& value, const std::string& key, int depth, std::vector<Step>* steps) {
  if (value.is_null()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::string type, StepType(value, key));
  if (type == "Sequence") {
    const auto list = value.find("normalizers");
    if (list == value.end() || !list->is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".normalizers: needs a list"));
    }
    if (depth >= kMaxNesting)
      return absl::InvalidArgumentError(absl::StrCat(key, ": nested deeper than ", kMaxNesting));
    for (size_t i = 0; i < list->size(); ++i) {
      BATON_RETURN_IF_ERROR(AppendSteps((*list)[i], absl::StrCat(key, ".normalizers[", i, "]"), depth + 1, steps));
    }
  } else if (type == "Prepend") {
    BATON_ASSIGN_OR_RETURN(std::string text, StringField(value, "prepend", "", key));
    steps->push_back(Normalizer::Prepend{std::move(text)});
  } else if (type == "Replace") {
    BATON_ASSIGN_OR_RETURN(Pattern pattern,
                           Pattern::FromJson(value.value("pattern", json()), absl::StrCat(key, ".pattern")));
    BATON_ASSIGN_OR_RETURN(std::string content, StringField(value, "content", "", key));
    steps->push_back(Normalizer::Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    BATON_ASSIGN_OR_RETURN(const bool left, BoolField(value, "strip_left", true, key));
    BATON_ASSIGN_OR_RETURN(const bool right, BoolField(value, "strip_right", true, key));
    steps->push_back(Normalizer::Strip{left, right});
  } else if (type == "NFC") {
    steps->push_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps->push_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps->push_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps->push_back(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    steps->push_back(Normalizer::LowercaseStep{});
  } else if (type == "StripAccents") {
    steps->push_back(Normalizer::StripAccentsStep{});
  } else if (type == "ByteLevel") {
    steps->push_back(Normalizer::ByteLevel{});
  } else {
    return absl::InvalidArgumentError(absl::StrCat(key, ": unknown normalizer type '", type, "'"));
  }
  return absl::OkStatus();
}

std::string StripWhitespace(absl::string_view text, const Normalizer::Strip& strip) {
  size_t begin = text.size(), end = 0;  // Of what is not white space.
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    if (IsWhitespace(NextCodePoint(text, &pos))) continue;
    begin = std::min(begin, at);
    end = pos;
  }
  if (begin > end) return (strip.left || strip.right) ? std::string() : std::string(text);
  if (!strip.left) begin = 0;
  if (!strip.right) end = text.size();
  return std::string(text.substr(begin, end - begin));
}

struct Applier {
  const std::string& text;

  absl::StatusOr<std::string> operator()(const Normalizer::Prepend& step) const {
    return text.empty() ? std::string() : absl::StrCat(step.text, text);
  }
  absl::StatusOr<std::string> operator()(const Normalizer::Replace& step) const {
    return step.pattern.ReplaceAll(text, step.content);
  }
  absl::StatusOr<std::string> operator()(const Normalizer::Strip& step) const { return StripWhitespace(text, step); }
  absl::StatusOr<std::string> operator()(const NormalForm& form) const { return Normalize(form, text); }
  absl::StatusOr<std::string> operator()(const Normalizer::LowercaseStep&) const { return Lowercase(text); }
  absl::StatusOr<std::string> operator()(const Normalizer::StripAccentsStep&) const { return StripAccents(text); }
  absl::StatusOr<std::string> operator()(const Normalizer::ByteLevel&) const {
    std::string out;
    AppendByteLevel(text, &out);
    return out;
  }
};

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const json& value) {
  std::vector<Step> steps;
  BATON_RETURN_IF_ERROR(AppendSteps(value, "normalizer", 0, &steps));
  return Normalizer(std::move(steps));
}

absl::StatusOr<std::string> Normalizer::Apply(absl::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    BATON_ASSIGN_OR_RETURN(out, std::visit(Applier{out}, step));
  }
  return out;
}

}  // namespace baton
