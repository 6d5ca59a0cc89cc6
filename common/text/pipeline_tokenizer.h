// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_PIPELINE_TOKENIZER_H_
#define BATON_COMMON_TEXT_PIPELINE_TOKENIZER_H_

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe_model.h"
#include "common/text/normalizer.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/sentencepiece_model.h"
#include "common/text/token_decoder.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary.h"

namespace baton {

// The parts that a tokenizer file describes, in the order in which Encode uses them.
struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;  // The model's tokens.
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<BpeModel, SentencePieceModel> model;
  std::vector<int32_t> prefix_ids, suffix_ids;  // What EncodeOptions::add_special puts around.
  TokenDecoder decoder;
  bool raw_added_tokens = false;  // Added tokens' bytes are their text, untouched by the decoder.
  SpecialTokens special_tokens;   // adds_bos is set by Create.
  std::string description;        // Whatever else decides the results; goes into the fingerprint.
  std::string source = "json";    // "json" or "gguf": how the description is written; begins the fingerprint.
};

// The tokenizer of both file formats: added tokens are cut out, the text between is normalised, cut into words and
// encoded word by word.
class PipelineTokenizer final : public Tokenizer {
 public:
  //   INVALID_ARGUMENT  an added, prefix, suffix or special id that has no token, or whose token differs in the
  //   vocabulary.
  static absl::StatusOr<std::unique_ptr<const PipelineTokenizer>> Create(TokenizerParts parts);

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, const EncodeOptions& options) const override;
  int vocab_size() const override { return static_cast<int>(bytes_.size()); }
  absl::string_view TokenBytes(int32_t id) const override;
  absl::string_view TokenText(int32_t id) const override;
  std::optional<int32_t> FindToken(absl::string_view text) const override;
  bool IsSpecial(int32_t id) const override;
  bool IsAdded(int32_t id) const override { return added_.Find(id) != nullptr; }
  const SpecialTokens& special_tokens() const override { return parts_.special_tokens; }
  const LeadingRule& leading_rule() const override { return parts_.decoder.leading_rule(); }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  explicit PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}
  absl::Status CheckIds() const;
  absl::Status FillBytes();
  std::string ComputeFingerprint() const;
  absl::Status EncodeText(absl::string_view text, bool at_start, bool parse_special, std::vector<int32_t>* ids) const;
  absl::Status EncodeWords(std::string text, bool at_start, std::vector<int32_t>* ids) const;

  struct Slice {
    uint32_t begin = 0, size = 0;
  };

  TokenizerParts parts_;
  AddedTokens added_;
  std::string arena_;         // The bytes of all tokens.
  std::vector<Slice> bytes_;  // By id.
  std::string fingerprint_;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_PIPELINE_TOKENIZER_H_
