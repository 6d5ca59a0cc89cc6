// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_UNICODE_ADDITIONS_H_
#define BATON_COMMON_TEXT_UNICODE_ADDITIONS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Members of a regular expression's class, `\x{1FA75}-\x{1FA77}...`: the code points of a general category ("So"), or
// of all that begin with its letter ("S"), which are newer than the Unicode 14 that Debian's PCRE2 knows. Published
// tokenizers are measured with Unicode 16.
std::string AdditionsTo(absl::string_view category);
// The category of one of them; empty for any other code point.
absl::string_view AddedCategory(char32_t code_point);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_UNICODE_ADDITIONS_H_
