// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_SENTENCEPIECE_MODEL_H_
#define BATON_COMMON_TEXT_SENTENCEPIECE_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// SentencePiece's BPE: of all neighbours whose joined text is a piece, the one with the highest score is joined first.
// There are no merges; GGUF files of model type `llama` carry scores instead. n log n. Immutable; any thread.
class SentencePieceModel {
 public:
  struct Piece {
    std::string text;  // With U+2581 for spaces.
    float score = 0;
    int32_t id = 0;
  };

  // `pieces` are those that may come out of text (not control, unknown or byte tokens). byte_ids[b] is the token of
  // byte b, -1 if there is none.
  //   INVALID_ARGUMENT  two pieces with one text, a score that is NaN, or neither all byte tokens nor an unknown token.
  static absl::StatusOr<SentencePieceModel> Create(const std::vector<Piece>& pieces,
                                                   const std::array<int32_t, 256>& byte_ids,
                                                   std::optional<int32_t> unk_id);

  // Appends the ids of one stretch of well-formed UTF-8 text.
  void Encode(absl::string_view text, std::vector<int32_t>* ids) const;

 private:
  struct Value {
    float score;
    int32_t id;
  };
  struct Symbol;
  struct Candidate;

  SentencePieceModel() = default;
  void EncodeUnknown(absl::string_view character, bool* unknown_run, std::vector<int32_t>* ids) const;

  absl::flat_hash_map<std::string, Value> pieces_;
  size_t max_piece_bytes_ = 0;
  std::array<int32_t, 256> byte_ids_;
  std::optional<int32_t> unk_id_;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_SENTENCEPIECE_MODEL_H_
