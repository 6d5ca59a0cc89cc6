// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_TOKENIZER_H_
#define BATON_COMMON_TEXT_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

struct EncodeOptions {
  // Adds what the file's post-processor (or GGUF's add_bos/add_eos) puts around a text, such as the begin token.
  bool add_special = false;
  // Text that spells a special token becomes that token. Otherwise it is plain text; added tokens that are not special
  // (`<think>`) are matched either way.
  bool parse_special = true;
};

// The ids with a role. Absent where the file names none.
struct SpecialTokens {
  std::optional<int32_t> bos, eos, eot;
  std::vector<int32_t> end_of_generation;  // Any of them ends an answer; sorted, includes eos and eot.
  bool adds_bos = false;                   // EncodeOptions::add_special puts bos in front.
};

// What the decoder of a tokenizer does to the beginning of a text, apart from joining the tokens' bytes.
struct LeadingRule {
  enum class Kind {
    kNone,
    kStrip,       // Up to `count` times `content` is removed from the start of the text.
    kFirstToken,  // Every space of the first token goes, unless it is an added token (Metaspace).
  };
  Kind kind = Kind::kNone;
  std::string content;
  int count = 0;
  std::string separator;  // Between tokens; for files without a decoder.
};

// Text to token ids and back. Implementations are immutable; any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  //   INVALID_ARGUMENT  not UTF-8 (names the byte), or over a pattern's matching limits.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, const EncodeOptions& options) const = 0;

  // One more than the highest id that has a token. A model may have more rows.
  virtual int vocab_size() const = 0;
  // The bytes that a token adds to a text; empty for an id without a token. A token may end inside a character.
  virtual absl::string_view TokenBytes(int32_t id) const = 0;
  // The token as the vocabulary file writes it; empty for an id without a token.
  virtual absl::string_view TokenText(int32_t id) const = 0;
  virtual std::optional<int32_t> FindToken(absl::string_view text) const = 0;
  // Special tokens (begin, end of turn, ...) are left out of decoded text unless asked for.
  virtual bool IsSpecial(int32_t id) const = 0;
  virtual bool IsAdded(int32_t id) const = 0;
  virtual const SpecialTokens& special_tokens() const = 0;
  virtual const LeadingRule& leading_rule() const = 0;
  // Over everything that decides the result of Encode and of decoding: the kind of file, "-", 16 hexadecimal digits. The kinds
  // write the same tokenizer differently: only fingerprints of one kind can be compared.
  virtual const std::string& fingerprint() const = 0;

  // The whole text of `ids`: what a Detokenizer fed with them emits. Ids without a token add nothing.
  std::string Decode(std::span<const int32_t> ids, bool keep_special) const;
};

// Encode for a prompt that a user wrote: where add_special puts a begin token in front of a text that already starts
// with one, there is still only one.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer, absl::string_view text,
                                                  const EncodeOptions& options);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_TOKENIZER_H_
