// SPDX-License-Identifier: Apache-2.0
#include "common/base/secret_file.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::string> ReadSecretFile(absl::string_view flag, const std::string& path) {
  constexpr size_t kMaxBytes = 4096;
  const auto refuse = [&](absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": ", why)); };
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) return absl::NotFoundError(absl::StrCat(flag, " ", path, ": cannot be read"));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxBytes) return refuse("is over 4096 bytes");
  const std::string word(absl::StripAsciiWhitespace(text));
  if (word.empty()) return refuse("is empty");
  const bool visible = std::all_of(word.begin(), word.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  return visible ? absl::StatusOr<std::string>(word) : refuse("has to hold one word of visible ASCII characters");
}

}  // namespace baton
