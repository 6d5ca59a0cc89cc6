// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_BPE_MODEL_H_
#define BATON_COMMON_TEXT_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/vocabulary.h"

namespace baton {

struct BpeOptions {
  bool ignore_merges = false;  // A word that is itself a token is taken whole.
  bool byte_fallback = false;  // A character without a token becomes its bytes' tokens `<0xNN>`, if all are there.
  bool fuse_unk = false;       // A run of unknown characters is one unknown token.
  std::optional<std::string> unk_token;  // Without one, unknown characters are dropped.
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
};

// Byte-pair encoding by ranked merges, as the `tokenizers` library's BPE model does it. n log n in the length of the
// word. Immutable; any thread.
class BpeModel {
 public:
  using Merge = std::pair<std::string, std::string>;

  // `merges` in order of rank. `vocab_key` and `merges_key` are what messages call them.
  //   INVALID_ARGUMENT  a merge or the unknown token names a text that is no token.
  static absl::StatusOr<BpeModel> Create(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<Merge>& merges,
                                         BpeOptions options, absl::string_view merges_key);

  // Appends the ids of one word of well-formed UTF-8.
  void Encode(absl::string_view word, std::vector<int32_t>* ids) const;

 private:
  struct MergeResult {
    uint32_t rank = 0;
    int32_t id = 0;
  };
  struct Symbol;
  struct Candidate;

  BpeModel() = default;
  std::optional<int32_t> FindCharacter(absl::string_view character, bool first, bool last) const;
  void SplitIntoSymbols(absl::string_view word, std::vector<Symbol>* symbols) const;
  void MergeAll(std::vector<Symbol>* symbols) const;
  static uint64_t PairKey(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  absl::flat_hash_map<uint64_t, MergeResult> merges_;
  BpeOptions options_;
  std::optional<int32_t> unk_id_;
  std::array<int32_t, 256> byte_ids_;         // Tokens `<0xNN>`; -1 where there is none.
  std::array<int32_t, 0x180> character_ids_;  // Tokens of one low code point, which are most symbols; -1: none.
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_BPE_MODEL_H_
