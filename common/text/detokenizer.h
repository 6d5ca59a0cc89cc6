// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_DETOKENIZER_H_
#define BATON_COMMON_TEXT_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "common/text/tokenizer.h"
#include "common/text/unicode.h"

namespace baton {

// Token ids to text as they come. Emits whole characters only; what it has emitted never changes, and the concatenation
// of everything is Tokenizer::Decode of all ids, however they were grouped. One thread.
class Detokenizer {
 public:
  // Special tokens add nothing unless `keep_special`. `tokenizer` outlives this.
  Detokenizer(const Tokenizer* tokenizer, bool keep_special) : tokenizer_(tokenizer), keep_special_(keep_special) {}

  // The text that `id` completes; often empty. An id without a token adds nothing.
  std::string Push(int32_t id);
  // The answer has ended: an unfinished character becomes U+FFFD.
  std::string Finish();

 private:
  // Applies the tokenizer's leading rule to the bytes of the next token.
  std::string Lead(int32_t id, absl::string_view bytes);

  const Tokenizer* const tokenizer_;
  const bool keep_special_;
  Utf8Sanitizer sanitizer_;
  bool first_ = true;      // No token has been taken yet.
  int num_stripped_ = 0;   // Of LeadingRule::count.
  bool stripping_ = true;  // Only content to strip has been seen.
  std::string withheld_;   // A beginning of content that may still be stripped.
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_DETOKENIZER_H_
