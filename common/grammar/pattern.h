// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_PATTERN_H_
#define BATON_COMMON_GRAMMAR_PATTERN_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/byte_dfa.h"

namespace baton {

// The texts in which `pattern`, a regular expression as ECMA-262 (and so JSON Schema) has it, finds a match: unless it begins
// with ^ and ends with $, anything may be around. Literals, classes, ., groups, |, quantifiers (lazy ones match the same
// texts), the escapes \d \w \s \D \W \S \t \n \r \f \v \0 \cX \xHH \uHHHH \u{H}, and ^ and $ at the ends of the whole pattern
// or of its alternatives.
//   INVALID_ARGUMENT    malformed, or one of: look-around, backreferences, \b, \p, anchors elsewhere; names the byte.
//   RESOURCE_EXHAUSTED  too large an automaton, or over the budget.
absl::StatusOr<ByteDfa> CompilePattern(absl::string_view pattern, CharacterForm form, CompileBudget* budget);

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_PATTERN_H_
