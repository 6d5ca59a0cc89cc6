// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_JSON_H_
#define BATON_COMMON_BASE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

inline constexpr int kMaxJsonDepth = 64;

// Parses one JSON text (RFC 8259) that somebody else wrote. Nesting is checked before anything is built, so memory stays
// flat however deep the text is. No exception escapes.
//   INVALID_ARGUMENT  syntax error, invalid UTF-8, a number out of range, text after the value, or nesting over
//                     `max_depth`; the message has the byte offset (0-based) and is itself valid UTF-8.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, int max_depth = kMaxJsonDepth);
// The same, keeping members in their order of appearance (tool schemas reach the prompt in that order).
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text, int max_depth = kMaxJsonDepth);

// JSON text of `value` on one line (or indented by `indent` spaces). Never throws: invalid UTF-8 becomes U+FFFD, NaN and
// infinities null.
std::string DumpJson(const nlohmann::json& value, int indent = -1);
std::string DumpJson(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace baton

#endif  // BATON_COMMON_BASE_JSON_H_
