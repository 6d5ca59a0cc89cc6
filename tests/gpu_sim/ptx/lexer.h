// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_LEXER_H_
#define BATON_TESTS_GPU_SIM_PTX_LEXER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::ptx {

// kWord: opcode, register, label or symbol with its dots ("ld.global.f32", "%tid.x"). kDirective begins with a dot. kPunctuation
// is one character.
enum class TokenKind { kWord, kDirective, kNumber, kString, kPunctuation, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // Into the source.
  int line = 0;
};

// The tokens of `source`, comments left out; the last one is kEnd.
//   INVALID_ARGUMENT  a character that no token begins with, or a comment or string without end.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_LEXER_H_
