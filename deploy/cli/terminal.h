// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_TERMINAL_H_
#define BATON_DEPLOY_CLI_TERMINAL_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::cli {

enum class Tone { kPlain, kDim, kBold, kGood, kBad };

// Whether text on `fd` may be coloured: a terminal (not TERM=dumb), and NO_COLOR is not set.
bool UseColor(int fd);

// Characters in a line of the terminal that `fd` is; 0 where it is none.
int TerminalColumns(int fd);

// `text` in a tone, where colour may be used.
std::string Styled(absl::string_view text, Tone tone, bool color);

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;
};
// Aligned columns, two spaces between them; the first row is the heading. Widths count characters, not bytes. Where the table is
// wider than `columns` (0: no bound) each row becomes a paragraph instead, of its cells behind their titles.
std::string Table(const std::vector<std::vector<Cell>>& rows, bool color, int columns = 0);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_TERMINAL_H_
