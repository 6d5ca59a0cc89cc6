// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton::cli {
namespace {

const char* Code(Tone tone) {
  switch (tone) {
    case Tone::kPlain: return "";
    case Tone::kDim: return "\x1b[2m";
    case Tone::kBold: return "\x1b[1m";
    case Tone::kGood: return "\x1b[32m";
    case Tone::kBad: return "\x1b[31m";
  }
  return "";
}

size_t NumCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

bool UseColor(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  return isatty(fd) == 1 && (term == nullptr || absl::string_view(term) != "dumb");
}

std::string Styled(absl::string_view text, Tone tone, bool color) {
  if (!color || tone == Tone::kPlain) return std::string(text);
  return absl::StrCat(Code(tone), text, "\x1b[0m");
}

std::string Table(const std::vector<std::vector<Cell>>& rows, bool color) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], NumCharacters(row[i].text));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, i > 0 ? "  " : "", Styled(row[i].text, row[i].tone, color));
      if (i + 1 < row.size()) line.append(widths[i] - NumCharacters(row[i].text), ' ');
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

}  // namespace baton::cli
