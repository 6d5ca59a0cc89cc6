// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_UNICODE_H_
#define BATON_COMMON_TEXT_UNICODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// INVALID_ARGUMENT "<what>: invalid UTF-8 at byte 5 (0xff)" unless `text` is well-formed. A truncated
// character counts from its first byte.
absl::Status ValidateUtf8(absl::string_view text, absl::string_view what);

// The code point at `*pos`, which moves behind it. `text` is well-formed UTF-8 and *pos < text.size().
char32_t NextCodePoint(absl::string_view text, size_t* pos);
void AppendUtf8(char32_t code_point, std::string* out);

// Unicode's White_Space property.
bool IsWhitespace(char32_t code_point);
// A letter, mark, decimal digit, letter number, connector punctuation or joiner: what touches a `single_word` token.
bool IsWordCharacter(char32_t code_point);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Takes n log n time whatever the text, long runs of combining marks included.
std::string Normalize(NormalForm form, absl::string_view text);
std::string Lowercase(absl::string_view text);     // Character by character.
std::string StripAccents(absl::string_view text);  // Drops all marks.

// Turns a stream of bytes into a stream of well-formed UTF-8: what is complete comes out, each maximal malformed part
// becomes one U+FFFD (Unicode 15, section 3.9, as in WHATWG's decoder), and an unfinished character waits for its
// bytes. The result does not depend on how the bytes were cut.
class Utf8Sanitizer {
 public:
  void Push(absl::string_view bytes, std::string* out);
  // The stream has ended: an unfinished character becomes U+FFFD. Ready for a new stream afterwards.
  void Finish(std::string* out);

 private:
  void Start(uint8_t byte, std::string* out);

  std::array<char, 4> pending_ = {};
  int num_pending_ = 0;
  int num_missing_ = 0;
  uint8_t low_ = 0x80, high_ = 0xBF;  // Bounds of the next byte.
};

// The reversible alphabet of byte-level BPE: each byte has one printable character (GPT-2's `bytes_to_unicode`).
char32_t ByteToCharacter(uint8_t byte);
int CharacterToByte(char32_t character);  // -1 when the character stands for no byte.
void AppendByteLevel(absl::string_view bytes, std::string* out);
// The bytes that a byte-level token stands for; nothing when one of its characters stands for no byte.
std::optional<std::string> FromByteLevel(absl::string_view token);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_UNICODE_H_
