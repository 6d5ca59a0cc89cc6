// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_PATTERN_SYNTAX_H_
#define BATON_COMMON_GRAMMAR_PATTERN_SYNTAX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Ranges of code points, in order, neither overlapping nor touching.
using CharacterSet = std::vector<std::pair<uint32_t, uint32_t>>;

// A regular expression as a tree.
struct PatternNode {
  enum class Kind { kCharacters, kSequence, kAlternatives, kRepeat, kBegin, kEnd };
  static constexpr int kUnbounded = -1;

  Kind kind = Kind::kSequence;
  CharacterSet characters;
  int min = 0, max = 0;  // Of a repeat.
  std::vector<PatternNode> children;
};

//   INVALID_ARGUMENT  as CompilePattern.
absl::StatusOr<PatternNode> ParsePattern(absl::string_view pattern);

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_PATTERN_SYNTAX_H_
