// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_NUMBER_DFA_H_
#define BATON_COMMON_GRAMMAR_NUMBER_DFA_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/byte_dfa.h"

namespace baton {

// A decimal number, exactly: no binary fraction comes between a schema's bound and the text.
struct Decimal {
  bool negative = false;
  std::string whole;     // Digits without leading zeros; empty: 0.
  std::string fraction;  // Digits without zeros at the end.

  bool zero() const { return whole.empty() && fraction.empty(); }
};
// Of a JSON number's text. Absent over 400 digits.
std::optional<Decimal> ParseDecimal(absl::string_view text);

struct NumberBounds {
  struct Bound {
    Decimal value;
    bool inclusive = true;
  };
  std::optional<Bound> low, high;
  int64_t multiple_of = 1;  // >= 1. Other than 1: whole numbers only.
  int max_fraction_digits = kMaxDigits;  // 0: whole numbers only.

  // Before and after the point together: what a double holds exactly enough to be read as the number that is written, so that
  // a text below a bound is below it for every reader.
  static constexpr int kMaxDigits = 15;
};

// The JSON texts, without exponent, of the numbers within `bounds`.
//   RESOURCE_EXHAUSTED  over ByteDfa::kMaxStates or the budget.
absl::StatusOr<ByteDfa> NumbersWithin(const NumberBounds& bounds, CompileBudget* budget);

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_NUMBER_DFA_H_
