// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_TOKEN_DECODER_H_
#define BATON_COMMON_TEXT_TOKEN_DECODER_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/pattern.h"
#include "common/text/tokenizer.h"
#include "nlohmann/json.hpp"

namespace baton {

// The "decoder" of a tokenizer.json in a form that works token by token: what bytes each token stands for, and what
// happens once at the start of a text. Decoding is then the concatenation of bytes, which streams.
class TokenDecoder {
 public:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {  // Of each token.
    std::string content;
    int start = 0, stop = 0;
  };
  struct Metaspace {
    std::string replacement;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Replace, Strip, Metaspace>;

  TokenDecoder() = default;  // A token's bytes are its text.
  TokenDecoder(std::vector<Step> steps, LeadingRule rule) : steps_(std::move(steps)), rule_(std::move(rule)) {}

  // A type that is not known, or a step that would need the whole text (anything but a Strip at the start after Fuse),
  // is INVALID_ARGUMENT naming it.
  static absl::StatusOr<TokenDecoder> FromJson(const nlohmann::json& value);

  absl::StatusOr<std::string> BytesOf(absl::string_view token) const;
  const LeadingRule& leading_rule() const { return rule_; }

 private:
  std::vector<Step> steps_;
  LeadingRule rule_;
};

// The byte that a token `<0xNN>` stands for, or -1.
int ByteTokenValue(absl::string_view token);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_TOKEN_DECODER_H_
