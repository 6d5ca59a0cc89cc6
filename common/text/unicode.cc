// SPDX-License-Identifier: Apache-2.0
#include "common/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/utf8.h"
#include "common/text/unicode_additions.h"

namespace baton {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// How a character that starts with `byte` goes on: number of further bytes (-1: `byte` starts none) and the bounds of
// the second one (Unicode 15, table 3-7).
struct Lead {
  int num_more;
  uint8_t low, high;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {0, 0, 0};
  if (byte < 0xC2) return {-1, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {-1, 0, 0};
}

bool AllBelow(absl::string_view text, uint8_t bound) {
  return std::all_of(text.begin(), text.end(), [bound](char c) { return static_cast<uint8_t>(c) < bound; });
}

int CombiningClass(utf8proc_int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

// Canonical ordering. utf8proc's own is a bubble sort, quadratic in the length of a run of marks.
void SortMarks(std::vector<utf8proc_int32_t>* code_points) {
  auto it = code_points->begin();
  while (it != code_points->end()) {
    if (CombiningClass(*it) == 0) {
      ++it;
      continue;
    }
    auto end = std::find_if(it, code_points->end(), [](utf8proc_int32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(it, end,
                     [](utf8proc_int32_t a, utf8proc_int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    it = end;
  }
}

struct ByteAlphabet {
  std::array<char32_t, 256> to_character;
  std::array<int16_t, 0x180> to_byte;
};

ByteAlphabet MakeByteAlphabet() {
  ByteAlphabet alphabet;
  alphabet.to_byte.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    alphabet.to_character[byte] = character;
    alphabet.to_byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet alphabet = MakeByteAlphabet();
  return alphabet;
}

}  // namespace

absl::Status ValidateUtf8(absl::string_view text, absl::string_view what) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: invalid UTF-8 at byte %d (0x%02x)", what, valid, static_cast<uint8_t>(text[valid])));
}

char32_t NextCodePoint(absl::string_view text, size_t* pos) {
  const uint8_t first = static_cast<uint8_t>(text[(*pos)++]);
  const int num_more = LeadOf(first).num_more;
  if (num_more <= 0) return first;
  char32_t code_point = first & (0x3F >> num_more);
  for (int k = 0; k < num_more && *pos < text.size(); ++k) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(text[(*pos)++]) & 0x3F);
  }
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(size));
}

bool IsWhitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsWordCharacter(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;  // Joiners.
  // Letters in circles and squares are symbols, but alphabetic.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_CN: {
      const absl::string_view added = AddedCategory(c);  // By a newer Unicode.
      return !added.empty() && (added[0] == 'L' || added[0] == 'M' || added == "Nd" || added == "Pc");
    }
    default:
      return false;
  }
}

std::string Normalize(NormalForm form, absl::string_view text) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  // ASCII is in every form; characters below U+0300 (lead byte 0xCC) are in NFC and compose with nothing.
  if (AllBelow(text, compose && !compatible ? 0xCC : 0x80)) return std::string(text);
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const auto code_point = static_cast<utf8proc_int32_t>(NextCodePoint(text, &pos));
    utf8proc_int32_t parts[32];  // The longest decomposition has 18.
    int boundary = 0;
    const utf8proc_ssize_t num_parts =
        utf8proc_decompose_char(code_point, parts, 32, static_cast<utf8proc_option_t>(options), &boundary);
    if (num_parts < 0 || num_parts > 32) {
      code_points.push_back(code_point);
    } else {
      code_points.insert(code_points.end(), parts, parts + num_parts);
    }
  }
  SortMarks(&code_points);
  size_t size = code_points.size();
  if (compose) {
    const utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(size),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed >= 0) size = static_cast<size_t>(composed);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < size; ++i) AppendUtf8(static_cast<char32_t>(code_points[i]), &out);
  return out;
}

std::string Lowercase(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, &pos);
    if (c == 0x130) {  // The one character whose lower case is two.
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

std::string StripAccents(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, &pos);
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool is_mark =
        category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
    if (!is_mark) AppendUtf8(c, &out);
  }
  return out;
}

void Utf8Sanitizer::Start(uint8_t byte, std::string* out) {
  const Lead lead = LeadOf(byte);
  if (lead.num_more == 0) {
    out->push_back(static_cast<char>(byte));
  } else if (lead.num_more < 0) {
    out->append(kReplacement);
  } else {
    pending_[0] = static_cast<char>(byte);
    num_pending_ = 1;
    num_missing_ = lead.num_more;
    low_ = lead.low;
    high_ = lead.high;
  }
}

void Utf8Sanitizer::Push(absl::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (num_pending_ == 0) {
      Start(byte, out);
      continue;
    }
    if (byte < low_ || byte > high_) {
      num_pending_ = 0;
      out->append(kReplacement);
      Start(byte, out);
      continue;
    }
    pending_[num_pending_++] = c;
    low_ = 0x80;
    high_ = 0xBF;
    if (--num_missing_ == 0) {
      out->append(pending_.data(), static_cast<size_t>(num_pending_));
      num_pending_ = 0;
    }
  }
}

void Utf8Sanitizer::Finish(std::string* out) {
  if (num_pending_ > 0) out->append(kReplacement);
  num_pending_ = 0;
}

char32_t ByteToCharacter(uint8_t byte) { return Alphabet().to_character[byte]; }

int CharacterToByte(char32_t character) {
  const auto& to_byte = Alphabet().to_byte;
  return character < to_byte.size() ? to_byte[character] : -1;
}

void AppendByteLevel(absl::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    const char32_t character = ByteToCharacter(static_cast<uint8_t>(c));
    if (character < 0x80) {
      out->push_back(static_cast<char>(character));
    } else {
      out->push_back(static_cast<char>(0xC0 | (character >> 6)));
      out->push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
}

std::optional<std::string> FromByteLevel(absl::string_view token) {
  std::string bytes;
  for (size_t pos = 0; pos < token.size();) {
    const int byte = CharacterToByte(NextCodePoint(token, &pos));
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace baton
