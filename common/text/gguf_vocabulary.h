// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_GGUF_VOCABULARY_H_
#define BATON_COMMON_TEXT_GGUF_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/format/gguf.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/tokenizer.h"

namespace baton {

// What a GGUF file says about its tokenizer (`tokenizer.ggml.*`), before any of it is given a meaning.
struct GgufVocabulary {
  std::string model;  // "gpt2": byte-level BPE; "llama": SentencePiece's BPE by scores.
  std::string pre;    // Name of the word patterns, for "gpt2".
  std::vector<std::string> tokens;
  std::vector<std::string> merges;   // "left right", by rank.
  std::vector<float> scores;         // Empty or one per token.
  std::vector<int32_t> token_types;  // Empty or one per token.
  std::optional<int64_t> bos, eos, eot, eom, unk;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

enum GgufTokenType : int32_t {
  kGgufNormal = 1,
  kGgufUnknown = 2,
  kGgufControl = 3,
  kGgufUserDefined = 4,
  kGgufUnused = 5,
  kGgufByte = 6,
};

// Reads the metadata. Errors name the key.
absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufFile& file);

//   INVALID_ARGUMENT  an unknown tokenizer model or pre-tokenizer (by name), arrays of differing length, a merge of
//   texts
//                     that are no tokens, a token that occurs twice, or a special id outside the vocabulary.
absl::StatusOr<std::unique_ptr<const Tokenizer>> TokenizerFromGguf(const GgufVocabulary& vocabulary);

// What a value of `tokenizer.ggml.pre` stands for.
struct GgufPreTokenizer {
  std::vector<PreTokenizer::Step> steps;
  bool ignore_merges = false;
  bool add_bos = false;  // Where the file does not say.
  bool nfc = false;
};
//   INVALID_ARGUMENT  not known (names it).
absl::StatusOr<GgufPreTokenizer> FindGgufPreTokenizer(absl::string_view name);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_GGUF_VOCABULARY_H_
