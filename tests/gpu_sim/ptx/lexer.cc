// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/lexer.h"

#include <cctype>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton::ptx {
namespace {

bool IsWordStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }
bool IsWordPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.' || c == '%';
}

absl::Status Error(int line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("ptx line ", line, ": ", what));
}

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  std::vector<Token> tokens;
  int line = 1;
  size_t at = 0;
  const auto push = [&](TokenKind kind, size_t end) {
    tokens.push_back({kind, source.substr(at, end - at), line});
    at = end;
  };
  while (at < source.size()) {
    const char c = source[at];
    if (c == '\n') ++line;
    if (c == '\0' || std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (source.substr(at, 2) == "//") {
      while (at < source.size() && source[at] != '\n') ++at;
    } else if (source.substr(at, 2) == "/*") {
      const size_t end = source.find("*/", at);
      if (end == std::string_view::npos) return Error(line, "comment without end");
      for (; at < end + 2; ++at) line += source[at] == '\n';
    } else if (c == '"') {
      const size_t end = source.find('"', at + 1);
      if (end == std::string_view::npos) return Error(line, "string without end");
      push(TokenKind::kString, end + 1);
    } else if (IsWordStart(c) || c == '.') {
      size_t end = at + 1;
      // "L2::128B" is one part of an opcode.
      while (end < source.size() && (IsWordPart(source[end]) || source.substr(end, 2) == "::")) {
        end += source[end] == ':' ? 2 : 1;
      }
      push(c == '.' ? TokenKind::kDirective : TokenKind::kWord, end);
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      size_t end = at + 1;
      while (end < source.size() && (std::isalnum(static_cast<unsigned char>(source[end])) != 0 || source[end] == '.')) ++end;
      push(TokenKind::kNumber, end);
    } else if (std::string_view("{}()[]<>,;:@!|+-=").find(c) != std::string_view::npos) {
      push(TokenKind::kPunctuation, at + 1);
    } else {
      return Error(line, absl::StrCat("no token begins with '", std::string(1, c), "'"));
    }
  }
  tokens.push_back({TokenKind::kEnd, {}, line});
  return tokens;
}

}  // namespace baton::ptx
