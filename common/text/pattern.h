// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_PATTERN_H_
#define BATON_COMMON_TEXT_PATTERN_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/regex.h"
#include "nlohmann/json.hpp"

namespace baton {

// What a tokenizer file writes as {"Regex": "..."} or {"String": "..."}; a String is matched literally.
class Pattern {
 public:
  static Pattern Literal(std::string text) { return Pattern(std::move(text)); }
  static absl::StatusOr<Pattern> FromRegex(absl::string_view pattern);
  // `key` is where the value stands in the file, for messages.
  static absl::StatusOr<Pattern> FromJson(const nlohmann::json& value, absl::string_view key);

  // Appends all matches, left to right. An empty literal matches nowhere. Codes of Regex::FindAll.
  absl::Status FindAll(absl::string_view text, std::vector<TextRange>* matches) const;
  // `text` with every match replaced by `replacement`, literally.
  absl::StatusOr<std::string> ReplaceAll(absl::string_view text, absl::string_view replacement) const;

 private:
  explicit Pattern(std::variant<std::string, Regex> value) : value_(std::move(value)) {}
  std::variant<std::string, Regex> value_;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_PATTERN_H_
