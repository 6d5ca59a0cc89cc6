// SPDX-License-Identifier: Apache-2.0
#include "common/text/pattern.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<Pattern> Pattern::FromRegex(absl::string_view pattern) {
  BATON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
  return Pattern(std::move(regex));
}

absl::StatusOr<Pattern> Pattern::FromJson(const nlohmann::json& value, absl::string_view key) {
  if (value.is_object() && value.size() == 1 && value.begin().value().is_string()) {
    const std::string& text = value.begin().value().get_ref<const std::string&>();
    if (value.begin().key() == "String") return Literal(text);
    if (value.begin().key() == "Regex") {
      absl::StatusOr<Pattern> pattern = FromRegex(text);
      if (!pattern.ok()) return Annotate(pattern.status(), key);
      return pattern;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(key, ": needs {\"String\": text} or {\"Regex\": text}"));
}

absl::Status Pattern::FindAll(absl::string_view text, std::vector<TextRange>* matches) const {
  if (const Regex* regex = std::get_if<Regex>(&value_)) return regex->FindAll(text, matches);
  const std::string& literal = std::get<std::string>(value_);
  if (literal.empty()) return absl::OkStatus();
  for (size_t pos = text.find(literal); pos != absl::string_view::npos;
       pos = text.find(literal, pos + literal.size())) {
    matches->push_back({pos, pos + literal.size()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Pattern::ReplaceAll(absl::string_view text, absl::string_view replacement) const {
  std::vector<TextRange> matches;
  BATON_RETURN_IF_ERROR(FindAll(text, &matches));
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (const TextRange& match : matches) {
    absl::StrAppend(&out, text.substr(done, match.begin - done), replacement);
    done = match.end;
  }
  absl::StrAppend(&out, text.substr(done));
  return out;
}

}  // namespace baton
