// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

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

// A row under its heading: as many "TITLE value" to a line as fit, the lines after the first one indented.
std::string Paragraph(const std::vector<Cell>& heading, const std::vector<Cell>& row, bool color, size_t columns) {
  std::string text;
  size_t used = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].text.empty()) continue;
    const bool titled = i > 0 && !heading[i].text.empty();  // The first cell is who it is about.
    const size_t width = NumCharacters(row[i].text) + (titled ? NumCharacters(heading[i].text) + 1 : 0);
    const bool fits = used + 2 + width <= columns;
    if (used > 0) absl::StrAppend(&text, fits ? "  " : "\n    ");
    used = used == 0 ? width : fits ? used + 2 + width : 4 + width;
    if (titled) absl::StrAppend(&text, Styled(heading[i].text, heading[i].tone, color), " ");
    absl::StrAppend(&text, Styled(row[i].text, row[i].tone, color));
  }
  return absl::StrCat(text, "\n");
}

}  // namespace

int TerminalColumns(int fd) {
  winsize size = {};
  return isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

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

std::string Table(const std::vector<std::vector<Cell>>& rows, bool color, int columns) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], NumCharacters(row[i].text));
  }
  const size_t wide = std::accumulate(widths.begin(), widths.end(), size_t{0}) + 2 * (std::max<size_t>(1, widths.size()) - 1);
  std::string text;
  if (columns > 0 && wide > static_cast<size_t>(columns)) {
    for (size_t i = 1; i < rows.size(); ++i) absl::StrAppend(&text, Paragraph(rows[0], rows[i], color, static_cast<size_t>(columns)));
    return text;
  }
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
