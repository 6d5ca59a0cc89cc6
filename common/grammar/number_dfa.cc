// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/number_dfa.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using Bound = NumberBounds::Bound;

// Where a number's digits so far stand to a bound: while whole digits come, as if the bound had as many; after the point, for
// good unless equal.
struct Comparison {
  int sign = 0;  // -1 below, 0 equal, 1 above.
  auto operator<=>(const Comparison&) const = default;
};

enum class Part { kNothing, kZero, kWhole, kPoint, kFraction };

struct Progress {
  Part part = Part::kNothing;
  int digits = 0;  // Of this part; of a fraction while it is equal to a bound's.
  int left = 0;    // Digits that a fraction may have yet.
  Comparison low, high;
  int64_t remainder = 0;
  auto operator<=>(const Progress&) const = default;
};

// The numbers of at least 0 between two bounds of at least 0, digit by digit.
class Side {
 public:
  Side(const NumberBounds& bounds, std::optional<Bound> low, std::optional<Bound> high)
      : bounds_(bounds), low_(std::move(low)), high_(std::move(high)) {
    if (!low_) begin_.low.sign = 1;
    if (!high_) begin_.high.sign = -1;
  }
  const Progress& begin() const { return begin_; }

  std::optional<Progress> Next(const Progress& from, char c) const {
    Progress to = from;
    if (c == '.') {
      if (from.part != Part::kZero && from.part != Part::kWhole) return std::nullopt;
      if (bounds_.max_fraction_digits == 0 || bounds_.multiple_of != 1) return std::nullopt;
      to.part = Part::kPoint;
      to.digits = 0;
      to.left = std::min(bounds_.max_fraction_digits, NumberBounds::kMaxDigits - (from.part == Part::kZero ? 0 : from.digits));
      if (to.left <= 0) return std::nullopt;
      if (low_) to.low = AtPoint(from, from.low, low_->value);
      if (high_) to.high = AtPoint(from, from.high, high_->value);
      return to;
    }
    const int digit = c - '0';
    if (from.part == Part::kZero) return std::nullopt;  // No digit follows a leading zero.
    if (from.part == Part::kPoint || from.part == Part::kFraction) {
      if (from.left == 0) return std::nullopt;
      to.part = Part::kFraction;
      to.left = from.left - 1;
      if (low_) to.low = AfterDigit(from.low, c, low_->value.fraction, from.digits);
      if (high_) to.high = AfterDigit(from.high, c, high_->value.fraction, from.digits);
    } else {
      if (from.digits >= NumberBounds::kMaxDigits) return std::nullopt;
      to.part = from.part == Part::kNothing && digit == 0 ? Part::kZero : Part::kWhole;
      if (low_) to.low = AfterDigit(from.low, c, low_->value.whole, from.digits);
      if (high_) to.high = AfterDigit(from.high, c, high_->value.whole, from.digits);
      to.remainder = (from.remainder * 10 + digit) % bounds_.multiple_of;
    }
    ++to.digits;
    if (to.part == Part::kFraction && to.low.sign != 0 && to.high.sign != 0) to.digits = 0;
    return to;
  }

  bool Accepts(const Progress& at) const {
    if (at.part == Part::kNothing || at.part == Part::kPoint || at.remainder != 0) return false;
    const int low = low_ ? AtEnd(at, at.low, low_->value) : 1;
    const int high = high_ ? AtEnd(at, at.high, high_->value) : -1;
    return (low > 0 || (low == 0 && low_->inclusive)) && (high < 0 || (high == 0 && high_->inclusive));
  }

 private:
  static Comparison AfterDigit(Comparison before, char c, const std::string& digits, int at) {
    if (before.sign != 0) return before;
    const char other = at < static_cast<int>(digits.size()) ? digits[at] : '0';
    return {c < other ? -1 : c > other ? 1 : 0};
  }
  // More digits before the point are more, whatever they are. (0 has none.)
  static Comparison AtPoint(const Progress& at, Comparison so_far, const Decimal& bound) {
    const int digits = at.part == Part::kZero ? 0 : at.digits, other = static_cast<int>(bound.whole.size());
    if (digits != other) return {digits < other ? -1 : 1};
    return digits == 0 ? Comparison{} : so_far;
  }
  static int AtEnd(const Progress& at, Comparison so_far, const Decimal& bound) {
    const bool whole = at.part == Part::kZero || at.part == Part::kWhole;
    if (whole) so_far = AtPoint(at, so_far, bound);
    if (so_far.sign != 0) return so_far.sign;
    const int digits = whole ? 0 : at.digits;
    return digits < static_cast<int>(bound.fraction.size()) ? -1 : 0;
  }

  const NumberBounds& bounds_;
  const std::optional<Bound> low_, high_;
  Progress begin_;
};

// Appends the side's states to `dfa`; the first of them.
absl::StatusOr<uint32_t> AddSide(const Side& side, CompileBudget* budget, ByteDfa* dfa) {
  std::map<Progress, uint32_t> numbers;
  std::vector<Progress> open;
  const uint32_t first = static_cast<uint32_t>(dfa->states.size());
  const auto number = [&](const Progress& progress) {
    const auto [it, inserted] = numbers.try_emplace(progress, static_cast<uint32_t>(dfa->states.size()));
    if (inserted) {
      dfa->states.push_back({.edges = {}, .accepting = side.Accepts(progress)});
      open.push_back(progress);
    }
    return it->second;
  };
  number(side.begin());
  for (size_t i = 0; i < open.size(); ++i) {
    if (dfa->states.size() > ByteDfa::kMaxStates) {
      return absl::ResourceExhaustedError(absl::StrCat("it needs an automaton of more than ", ByteDfa::kMaxStates, " states"));
    }
    if (!budget->Take(200)) return CompileBudget::Exceeded();
    const Progress at = open[i];
    std::vector<ByteDfa::Edge> edges;
    for (const char c : absl::string_view(".0123456789")) {
      const std::optional<Progress> next = side.Next(at, c);
      if (next) edges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c), number(*next)});
    }
    dfa->states[first + i].edges = std::move(edges);
  }
  return first;
}

Bound Mirrored(Bound bound) {
  bound.value.negative = !bound.value.negative;
  return bound;
}

bool Below0(const std::optional<Bound>& bound) { return bound && bound->value.negative && !bound->value.zero(); }

// A bound that numbers of at least 0 keep in any case is none.
std::optional<Bound> AtLeast0(const std::optional<Bound>& low) { return Below0(low) ? std::nullopt : low; }

}  // namespace

std::optional<Decimal> ParseDecimal(absl::string_view text) {
  constexpr int kMaxShift = 400;
  Decimal number;
  number.negative = !text.empty() && text[0] == '-';
  text.remove_prefix(number.negative);
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != absl::string_view::npos) {
    absl::string_view digits = text.substr(e + 1);
    if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
    if (!absl::SimpleAtoi(digits, &exponent) || exponent > kMaxShift || exponent < -kMaxShift) return std::nullopt;
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  if (point < text.size()) digits.append(text.substr(point + 1).data(), text.size() - point - 1);
  if (digits.size() > kMaxShift) return std::nullopt;
  int whole = static_cast<int>(point) + exponent;
  if (whole < 0) {
    digits.insert(0, static_cast<size_t>(-whole), '0');
    whole = 0;
  }
  if (whole > static_cast<int>(digits.size())) digits.resize(whole, '0');
  number.whole = digits.substr(0, whole);
  number.fraction = digits.substr(whole);
  number.whole.erase(0, std::min(number.whole.find_first_not_of('0'), number.whole.size()));
  number.fraction.erase(number.fraction.find_last_not_of('0') + 1);
  return number;
}

absl::StatusOr<ByteDfa> NumbersWithin(const NumberBounds& bounds, CompileBudget* budget) {
  ByteDfa dfa;
  dfa.states.emplace_back();
  if (!Below0(bounds.high)) {
    const Side side(bounds, AtLeast0(bounds.low), bounds.high);
    BATON_ASSIGN_OR_RETURN(const uint32_t first, AddSide(side, budget, &dfa));
    dfa.states[0].edges = dfa.states[first].edges;
  }
  if (Below0(bounds.low) || !bounds.low) {
    std::optional<Bound> low, high;
    if (bounds.high) low = AtLeast0(Mirrored(*bounds.high));
    if (bounds.low) high = Mirrored(*bounds.low);
    const Side side(bounds, low, high);
    BATON_ASSIGN_OR_RETURN(const uint32_t first, AddSide(side, budget, &dfa));
    dfa.states[0].edges.insert(dfa.states[0].edges.begin(), {'-', '-', first});
  }
  return dfa;
}

}  // namespace baton
