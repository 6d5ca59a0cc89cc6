// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_REGEX_H_
#define BATON_COMMON_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct pcre2_real_code_8;

namespace baton {

// A half-open range of bytes.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// A pattern of a tokenizer file, in the dialect those files are written for (Oniguruma), run by PCRE2's JIT. Immutable;
// any thread.
class Regex {
 public:
  // INVALID_ARGUMENT names the pattern, the place and the reason.
  static absl::StatusOr<Regex> Compile(absl::string_view pattern);

  // Appends all matches, left to right, not overlapping. An empty match directly behind the last match is not one.
  // `text` is well-formed UTF-8.
  //   INVALID_ARGUMENT  the text drives the pattern over its backtracking limits.
  absl::Status FindAll(absl::string_view text, std::vector<TextRange>* matches) const;

 private:
  explicit Regex(std::shared_ptr<const pcre2_real_code_8> code) : code_(std::move(code)) {}
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// `pattern` rewritten so that PCRE2 matches what Oniguruma would: \s is White_Space, \w and \d are Unicode's, \h is a
// hexadecimal digit, \p{Han} is a script and not script extensions. What cannot be said (nested classes, `&&`,
// `{n,m}+`) is INVALID_ARGUMENT rather than matched wrongly.
absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_REGEX_H_
