// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/pattern_syntax.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using Kind = PatternNode::Kind;

constexpr uint32_t kLastCharacter = 0x10FFFF;
constexpr int kMaxNesting = 64;
constexpr int kMaxRepeat = 10000;

// What an escape such as \s stands for. Engines differ (ECMA-262, Python's re, RE2, ...): `surely` is in it for all of them,
// `perhaps` for at least one. What is written has to match for all, so a set is taken by `surely` and its complement by
// `perhaps`.
struct Meaning {
  CharacterSet surely, perhaps;
};

const CharacterSet kDigits = {{'0', '9'}};
// Every letter, digit and mark of any script, and more: what is left beyond ASCII are the blank and signs before the first
// letter, dashes, quotes and dots, currencies, arrows and operators.
const CharacterSet kPerhapsWord = {{'0', '9'},       {'A', 'Z'},       {'_', '_'},       {'a', 'z'},          {0x80, 0x9F},
                                   {0xAA, 0x200F},   {0x2028, 0x202F}, {0x203F, 0x209F}, {0x20C0, 0x218F}, {0x2400, kLastCharacter}};
// Decimal digits of all scripts; of the rarer planes all but pictures.
const CharacterSet kPerhapsDigits = {
    {'0', '9'}, {0x660, 0x669}, {0x6F0, 0x6F9}, {0x7C0, 0x7C9}, {0x966, 0x96F}, {0x9E6, 0x9EF}, {0xA66, 0xA6F},
    {0xAE6, 0xAEF}, {0xB66, 0xB6F}, {0xBE6, 0xBEF}, {0xC66, 0xC6F}, {0xCE6, 0xCEF}, {0xD66, 0xD6F}, {0xDE6, 0xDEF},
    {0xE50, 0xE59}, {0xED0, 0xED9}, {0xF20, 0xF29}, {0x1040, 0x1049}, {0x1090, 0x1099}, {0x17E0, 0x17E9},
    {0x1810, 0x1819}, {0x1946, 0x194F}, {0x19D0, 0x19D9}, {0x1A80, 0x1A89}, {0x1A90, 0x1A99}, {0x1B50, 0x1B59},
    {0x1BB0, 0x1BB9}, {0x1C40, 0x1C49}, {0x1C50, 0x1C59}, {0xA620, 0xA629}, {0xA8D0, 0xA8D9}, {0xA900, 0xA909},
    {0xA9D0, 0xA9D9}, {0xA9F0, 0xA9F9}, {0xAA50, 0xAA59}, {0xABF0, 0xABF9}, {0xFF10, 0xFF19}, {0x10000, 0x1EFFF},
    {0x1FBF0, 0x1FBF9}};
const CharacterSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharacterSet kSpaces = {{'\t', '\r'}, {' ', ' '}};
const CharacterSet kPerhapsSpaces = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x180E, 0x180E},
                                     {0x2000, 0x200B}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x2060}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharacterSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

CharacterSet Normal(CharacterSet set) {
  std::ranges::sort(set);
  CharacterSet result;
  for (const auto& [low, high] : set) {
    if (!result.empty() && low <= result.back().second + 1) {
      result.back().second = std::max(result.back().second, high);
    } else {
      result.emplace_back(low, high);
    }
  }
  return result;
}

CharacterSet Complement(const CharacterSet& set) {
  CharacterSet result;
  uint32_t next = 0;
  for (const auto& [low, high] : Normal(set)) {
    if (low > next) result.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLastCharacter) result.emplace_back(next, kLastCharacter);
  return result;
}

Meaning Exactly(CharacterSet set) { return {set, set}; }
Meaning NotIn(const Meaning& meaning) { return {Complement(meaning.perhaps), Complement(meaning.surely)}; }

class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<PatternNode> Parse() {
    BATON_ASSIGN_OR_RETURN(PatternNode node, Alternatives(0));
    if (at_ < text_.size()) return Error("a ) without its (");
    return node;
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("byte ", at_, ": ", what));
  }
  bool Done() const { return at_ >= text_.size(); }
  bool Take(absl::string_view prefix) {
    if (!absl::StartsWith(text_.substr(at_), prefix)) return false;
    at_ += prefix.size();
    return true;
  }

  absl::StatusOr<PatternNode> Alternatives(int depth) {
    if (depth > kMaxNesting) return Error(absl::StrCat("groups are nested deeper than ", kMaxNesting));
    PatternNode node{.kind = Kind::kAlternatives};
    do {
      PatternNode sequence{.kind = Kind::kSequence};
      while (!Done() && text_[at_] != '|' && text_[at_] != ')') {
        BATON_ASSIGN_OR_RETURN(PatternNode term, Quantified(depth));
        sequence.children.push_back(std::move(term));
      }
      node.children.push_back(std::move(sequence));
    } while (Take("|"));
    return node;
  }

  absl::StatusOr<PatternNode> Quantified(int depth) {
    BATON_ASSIGN_OR_RETURN(PatternNode term, Term(depth));
    int min = 0, max = PatternNode::kUnbounded;
    if (Take("+")) {
      min = 1;
    } else if (Take("?")) {
      max = 1;
    } else if (!Take("*")) {
      const size_t before = at_;
      if (!Take("{")) return term;
      if (!Bounds(&min, &max)) {  // Then it stands for itself.
        at_ = before;
        return term;
      }
    }
    if (term.kind == Kind::kBegin || term.kind == Kind::kEnd) return Error("an anchor cannot be repeated");
    if (min > kMaxRepeat || max > kMaxRepeat) return Error(absl::StrCat("more than ", kMaxRepeat, " repetitions"));
    if (max != PatternNode::kUnbounded && max < min) return Error("the bounds of {} are out of order");
    Take("?");
    if (!Done() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) return Error("nothing to repeat");
    PatternNode repeat{.kind = Kind::kRepeat, .min = min, .max = max};
    repeat.children.push_back(std::move(term));
    return repeat;
  }

  // After "{": m}, m,} or m,n}.
  bool Bounds(int* min, int* max) {
    const std::optional<int> low = Number();
    if (!low) return false;
    *min = *max = *low;
    if (Take(",")) {
      const std::optional<int> high = Number();
      *max = high.value_or(PatternNode::kUnbounded);
    }
    return Take("}");
  }
  std::optional<int> Number() {
    if (Done() || !absl::ascii_isdigit(text_[at_])) return std::nullopt;
    int value = 0;
    for (; !Done() && absl::ascii_isdigit(text_[at_]); ++at_) value = std::min(kMaxRepeat + 1, value * 10 + (text_[at_] - '0'));
    return value;
  }

  static PatternNode Characters(CharacterSet set) { return {.kind = Kind::kCharacters, .characters = std::move(set)}; }

  absl::StatusOr<PatternNode> Term(int depth) {
    if (Take("^")) return PatternNode{.kind = Kind::kBegin};
    if (Take("$")) return PatternNode{.kind = Kind::kEnd};
    if (Take(".")) return Characters(Complement(kLineEnds));
    if (Take("[")) return Class();
    if (Take("(")) return Group(depth);
    if (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?') return Error("nothing to repeat");
    if (Take("\\")) {
      BATON_ASSIGN_OR_RETURN(Meaning meaning, Escape(/*in_class=*/false));
      return Characters(std::move(meaning.surely));
    }
    BATON_ASSIGN_OR_RETURN(const uint32_t c, Literal());
    return Characters({{c, c}});
  }

  absl::StatusOr<PatternNode> Group(int depth) {
    if (Take("?:") || !Take("?")) {
      // A group.
    } else if (Take("=") || Take("!") || Take("<=") || Take("<!")) {
      return Error("look-around is not supported");
    } else if (Take("<")) {
      const size_t end = text_.find('>', at_);
      if (end == absl::string_view::npos) return Error("a group's name without its >");
      at_ = end + 1;
    } else {
      return Error("an unknown kind of group");
    }
    BATON_ASSIGN_OR_RETURN(PatternNode node, Alternatives(depth + 1));
    if (!Take(")")) return Error("a ( without its )");
    return node;
  }

  absl::StatusOr<uint32_t> Literal() {
    const uint8_t first = static_cast<uint8_t>(text_[at_]);
    const int n = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (at_ + n > text_.size()) return Error("an unfinished character");
    uint32_t c = n == 1 ? first : first & (0x7F >> n);
    for (int i = 1; i < n; ++i) c = c << 6 | (static_cast<uint8_t>(text_[at_ + i]) & 0x3F);
    at_ += n;
    return c;
  }

  absl::StatusOr<uint32_t> Hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      if (Done() || !absl::ascii_isxdigit(text_[at_])) return Error(absl::StrCat(digits, " hexadecimal digits are missing"));
      const char c = absl::ascii_tolower(text_[at_]);
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
  }

  // After the backslash.
  absl::StatusOr<Meaning> Escape(bool in_class) {
    if (Done()) return Error("a \\ at the end");
    const char c = text_[at_++];
    switch (c) {
      case 'd': return Meaning{kDigits, kPerhapsDigits};
      case 'w': return Meaning{kWord, kPerhapsWord};
      case 's': return Meaning{kSpaces, kPerhapsSpaces};
      case 'D': return NotIn({kDigits, kPerhapsDigits});
      case 'W': return NotIn({kWord, kPerhapsWord});
      case 'S': return NotIn({kSpaces, kPerhapsSpaces});
      case 't': return Exactly({{'\t', '\t'}});
      case 'n': return Exactly({{'\n', '\n'}});
      case 'r': return Exactly({{'\r', '\r'}});
      case 'f': return Exactly({{'\f', '\f'}});
      case 'v': return Exactly({{'\v', '\v'}});
      case '0': return Exactly({{0, 0}});
      case 'x': return Single(Hex(2));
      case 'u': return Single(Take("{") ? BracedHex() : Hex(4));
      case 'b':
        if (in_class) return Exactly({{'\b', '\b'}});
        break;
      case 'c':
        if (!Done() && absl::ascii_isalpha(text_[at_])) {
          const uint32_t control = static_cast<uint32_t>(text_[at_++]) & 0x1F;
          return Exactly({{control, control}});
        }
        break;
      default:
        if (!absl::ascii_isalnum(c)) {
          --at_;
          return Single(Literal());
        }
    }
    return Error(absl::StrCat("\\", std::string(1, c), " is not supported"));
  }
  static absl::StatusOr<Meaning> Single(const absl::StatusOr<uint32_t>& c) {
    if (!c.ok()) return c.status();
    return Exactly({{*c, *c}});
  }
  absl::StatusOr<uint32_t> BracedHex() {
    const size_t end = text_.find('}', at_);
    if (end == absl::string_view::npos || end == at_ || end - at_ > 6) return Error("\\u{} has one to six digits");
    BATON_ASSIGN_OR_RETURN(const uint32_t value, Hex(end - at_));
    ++at_;
    if (value > kLastCharacter) return Error("\\u{} is over 10FFFF");
    return value;
  }

  // After the [.
  absl::StatusOr<PatternNode> Class() {
    const bool negated = Take("^");
    Meaning all;
    while (!Take("]")) {
      if (Done()) return Error("a [ without its ]");
      BATON_ASSIGN_OR_RETURN(const Meaning low, ClassMember());
      const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (!range) {
        all.surely.insert(all.surely.end(), low.surely.begin(), low.surely.end());
        all.perhaps.insert(all.perhaps.end(), low.perhaps.begin(), low.perhaps.end());
        continue;
      }
      ++at_;
      BATON_ASSIGN_OR_RETURN(const Meaning high, ClassMember());
      if (!IsOne(low) || !IsOne(high) || low.surely[0].first > high.surely[0].first) return Error("a range of a class is out of order");
      all.surely.emplace_back(low.surely[0].first, high.surely[0].first);
      all.perhaps.push_back(all.surely.back());
    }
    CharacterSet set = negated ? Complement(all.perhaps) : Normal(std::move(all.surely));
    if (set.empty()) return Error("a class of no characters");
    return Characters(std::move(set));
  }
  static bool IsOne(const Meaning& meaning) {
    return meaning.surely == meaning.perhaps && meaning.surely.size() == 1 && meaning.surely[0].first == meaning.surely[0].second;
  }
  absl::StatusOr<Meaning> ClassMember() {
    if (Take("\\")) return Escape(/*in_class=*/true);
    return Single(Literal());
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<PatternNode> ParsePattern(absl::string_view pattern) { return Parser(pattern).Parse(); }

}  // namespace baton
