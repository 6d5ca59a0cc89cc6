// SPDX-License-Identifier: Apache-2.0
// The dialect of tokenizer files, Oniguruma's, expressed in PCRE2's.
#include <array>
#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/regex.h"
#include "common/text/unicode_additions.h"

namespace baton {
namespace {

// Members of a class. PCRE2's own \s has U+180E as well, and its \w lacks marks.
constexpr absl::string_view kSpace = R"(\t-\r\x{20}\x{85}\p{Z})";
constexpr absl::string_view kHex = "0-9A-Fa-f";

const std::string& WordMembers() {
  static const auto* members = new std::string(
      absl::StrCat(R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})", AdditionsTo("L"), AdditionsTo("M"), AdditionsTo("Nd")));
  return *members;
}

class Translator {
 public:
  explicit Translator(absl::string_view in) : in_(in) {}

  absl::StatusOr<std::string> Run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        BATON_RETURN_IF_ERROR(Escape(/*in_class=*/false));
      } else if (c == '[') {
        BATON_RETURN_IF_ERROR(Class());
      } else if (c == '{') {
        BATON_RETURN_IF_ERROR(Interval());
      } else {
        out_.push_back(c);
        ++pos_;
      }
    }
    return std::move(out_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("pattern '", in_, "': byte ", pos_, ": ", what));
  }

  // A class given by its members, inside or outside of brackets.
  void Members(absl::string_view members, bool in_class, bool negated = false) {
    absl::StrAppend(&out_, in_class ? "" : negated ? "[^" : "[", members, in_class ? "" : "]");
  }

  // \p{category} or its complement, with what is newer than PCRE2's tables. In a class the complement has to do
  // without.
  void Category(absl::string_view category, bool in_class, bool negated) {
    if (negated && in_class) {
      absl::StrAppend(&out_, "\\P{", category, "}");
    } else {
      Members(absl::StrCat("\\p{", category, "}", AdditionsTo(category)), in_class, negated);
    }
  }

  absl::Status Escape(bool in_class) {
    if (pos_ + 1 >= in_.size()) return Error("pattern ends in a backslash");
    const char c = in_[pos_ + 1];
    if (c == 'p' || c == 'P') return Property(in_class);
    if (c == 'u') return HexEscape();
    pos_ += 2;
    switch (c) {
      case 's':
        Members(kSpace, in_class);
        break;
      case 'd':
        Category("Nd", in_class, /*negated=*/false);
        break;
      case 'D':
        Category("Nd", in_class, /*negated=*/true);
        break;
      case 'w':
        Members(WordMembers(), in_class);
        break;
      case 'h':
        Members(kHex, in_class);
        break;
      case 'S':
      case 'W':
      case 'H':
        if (!in_class) {
          Members(c == 'S' ? kSpace : c == 'W' ? absl::string_view(WordMembers()) : kHex, in_class, /*negated=*/true);
          break;
        }
        if (c == 'H') return Error("\\H in a class is not supported");
        [[fallthrough]];  // PCRE2's own complement: it differs for U+180E and for marks only.
      default:
        out_.push_back('\\');
        out_.push_back(c);
    }
    return absl::OkStatus();
  }

  absl::Status HexEscape() {  // \uHHHH
    const absl::string_view digits = in_.substr(std::min(pos_ + 2, in_.size()), 4);
    if (digits.size() != 4) return Error("\\u needs four hexadecimal digits");
    for (const char d : digits) {
      if (!absl::ascii_isxdigit(d)) return Error("\\u needs four hexadecimal digits");
    }
    absl::StrAppend(&out_, "\\x{", digits, "}");
    pos_ += 6;
    return absl::OkStatus();
  }

  absl::Status Property(bool in_class) {
    bool negated = in_[pos_ + 1] == 'P';
    if (pos_ + 2 >= in_.size() || in_[pos_ + 2] != '{') return Error("\\p needs {name}");
    const size_t close = in_.find('}', pos_);
    if (close == absl::string_view::npos) return Error("\\p{ without }");
    absl::string_view name = in_.substr(pos_ + 3, close - pos_ - 3);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    static constexpr std::array<std::pair<absl::string_view, absl::string_view>, 11> kNames = {
        {{"Letter", "L"},
         {"Mark", "M"},
         {"Number", "N"},
         {"Punctuation", "P"},
         {"Symbol", "S"},
         {"Separator", "Z"},
         {"Other", "C"},
         {"Alpha", "Alphabetic"},
         {"Digit", "Nd"},
         {"Upper", "Uppercase"},
         {"Lower", "Lowercase"}}};
    std::string mapped(name);
    for (const auto& [from, to] : kNames) {
      if (absl::EqualsIgnoreCase(name, from)) mapped = std::string(to);
    }
    // PCRE2 reads a script's bare name as script extensions.
    static constexpr std::array<absl::string_view, 6> kBinary = {"Alphabetic",  "Uppercase", "Lowercase",
                                                                 "White_Space", "Any",       "Emoji"};
    const bool is_binary = std::find(kBinary.begin(), kBinary.end(), mapped) != kBinary.end();
    pos_ = close + 1;
    if (mapped.size() <= 2) {
      Category(mapped, in_class, negated);
      return absl::OkStatus();
    }
    absl::StrAppend(&out_, negated ? "\\P{" : "\\p{", is_binary ? "" : "sc:", mapped, "}");
    return absl::OkStatus();
  }

  absl::Status Class() {
    out_ += '[';
    ++pos_;
    if (pos_ < in_.size() && in_[pos_] == '^') {
      out_ += '^';
      ++pos_;
    }
    if (pos_ < in_.size() && in_[pos_] == ']') {
      out_ += "\\]";
      ++pos_;
    }
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == ']') {
        out_ += ']';
        ++pos_;
        return absl::OkStatus();
      }
      if (c == '\\') {
        BATON_RETURN_IF_ERROR(Escape(/*in_class=*/true));
        continue;
      }
      if (absl::StartsWith(in_.substr(pos_), "&&")) return Error("class intersection (&&) is not supported");
      if (absl::StartsWith(in_.substr(pos_), "[:")) {
        const size_t close = in_.find(":]", pos_ + 2);
        if (close == absl::string_view::npos) return Error("[: without :]");
        absl::StrAppend(&out_, in_.substr(pos_, close + 2 - pos_));
        pos_ = close + 2;
        continue;
      }
      if (c == '[') return Error("nested character class is not supported");
      out_.push_back(c);
      ++pos_;
    }
    return Error("character class without ]");
  }

  // Copies `{n,m}`; a `+` behind it repeats in Oniguruma and makes possessive in PCRE2.
  absl::Status Interval() {
    size_t end = pos_ + 1;
    while (end < in_.size() && (absl::ascii_isdigit(in_[end]) || in_[end] == ',')) ++end;
    if (end > pos_ + 1 && end + 1 < in_.size() && in_[end] == '}' && in_[end + 1] == '+') {
      return Error("{n,m}+ is not supported");
    }
    out_.push_back('{');
    ++pos_;
    return absl::OkStatus();
  }

  const absl::string_view in_;
  size_t pos_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace baton
