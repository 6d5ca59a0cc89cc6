// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_UTF8_H_
#define BATON_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// Length in bytes of the longest valid UTF-8 prefix (no overlong forms, surrogates or code points over U+10FFFF);
// text.size() when all of it is valid.
size_t ValidUtf8Prefix(absl::string_view text);
inline bool IsValidUtf8(absl::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

// `text` with every maximal invalid run replaced as the Unicode standard recommends (U+FFFD per maximal subpart).
std::string ReplaceInvalidUtf8(absl::string_view text);

}  // namespace baton

#endif  // BATON_COMMON_BASE_UTF8_H_
