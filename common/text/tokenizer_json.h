// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_TOKENIZER_JSON_H_
#define BATON_COMMON_TEXT_TOKENIZER_JSON_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/bpe_model.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary.h"
#include "nlohmann/json.hpp"

namespace baton {

// A tokenizer.json as it stands in the file: the two long tables apart, which would take gigabytes as a JSON tree, and
// everything else as JSON (with "model" lacking "vocab" and "merges").
struct TokenizerJson {
  nlohmann::json rest;
  std::vector<Vocabulary::Entry> vocabulary;
  std::vector<BpeModel::Merge> merges;
};

// Reads the file's text. Depth is bounded, and nothing recurses.
//   INVALID_ARGUMENT  malformed JSON (names the byte), nested too deeply, or a table of another shape (names the
//   entry).
absl::StatusOr<TokenizerJson> ReadTokenizerJson(absl::string_view text);

// The roles of tokens, as tokenizer_config.json and generation_config.json give them: as text, or as ids.
struct TokenRoles {
  std::string bos, eos;                    // Empty: not said.
  std::vector<int64_t> end_of_generation;  // Added to eos.
};

// Builds the tokenizer that `text`, a tokenizer.json, describes. Without roles in a configuration the post-processor's
// first token is bos, and tokens with the usual names of end tokens end the generation.
//   INVALID_ARGUMENT  not a BPE tokenizer, an unknown step (by name), or tables that contradict each other.
absl::StatusOr<std::unique_ptr<const Tokenizer>> TokenizerFromJson(absl::string_view text,
                                                                   const TokenRoles& roles = {});

// Names that published vocabularies give to tokens which end a turn or a text.
bool IsEndTokenName(absl::string_view text);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_TOKENIZER_JSON_H_
