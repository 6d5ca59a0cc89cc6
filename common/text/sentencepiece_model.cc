// SPDX-License-Identifier: Apache-2.0
#include "common/text/sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "absl/strings/str_cat.h"
#include "common/text/unicode.h"

namespace baton {

// A stretch of the text in a doubly linked list by index; size 0: joined into its left neighbour.
struct SentencePieceModel::Symbol {
  size_t begin;
  size_t size;
  int32_t previous;
  int32_t next;
};

struct SentencePieceModel::Candidate {
  float score;
  int32_t left;
  size_t size;  // Of both symbols together, to see whether they are still what they were.
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

absl::StatusOr<SentencePieceModel> SentencePieceModel::Create(const std::vector<Piece>& pieces,
                                                              const std::array<int32_t, 256>& byte_ids,
                                                              std::optional<int32_t> unk_id) {
  SentencePieceModel model;
  model.byte_ids_ = byte_ids;
  model.unk_id_ = unk_id;
  model.pieces_.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (std::isnan(piece.score)) {
      return absl::InvalidArgumentError(absl::StrCat("score of token ", piece.id, " ('", piece.text, "') is NaN"));
    }
    const auto [it, inserted] = model.pieces_.emplace(piece.text, Value{piece.score, piece.id});
    if (!inserted) {
      return absl::InvalidArgumentError(
          absl::StrCat("token '", piece.text, "' occurs twice, as id ", it->second.id, " and id ", piece.id));
    }
    model.max_piece_bytes_ = std::max(model.max_piece_bytes_, piece.text.size());
  }
  const bool all_bytes = std::all_of(byte_ids.begin(), byte_ids.end(), [](int32_t id) { return id >= 0; });
  if (!all_bytes && !unk_id) {
    return absl::InvalidArgumentError("vocabulary has neither all 256 byte tokens <0xNN> nor an unknown token");
  }
  return model;
}

void SentencePieceModel::EncodeUnknown(absl::string_view character, bool* unknown_run,
                                       std::vector<int32_t>* ids) const {
  bool all_bytes = true;
  for (const char c : character) all_bytes = all_bytes && byte_ids_[static_cast<uint8_t>(c)] >= 0;
  if (all_bytes) {
    for (const char c : character) ids->push_back(byte_ids_[static_cast<uint8_t>(c)]);
    *unknown_run = false;
  } else if (!*unknown_run) {
    ids->push_back(*unk_id_);
    *unknown_run = true;
  }
}

void SentencePieceModel::Encode(absl::string_view text, std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  std::vector<Symbol> symbols;
  symbols.reserve(text.size() / 2 + 1);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    NextCodePoint(text, &pos);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({begin, pos - begin, index - 1, pos == text.size() ? -1 : index + 1});
  }
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const size_t size = symbols[left].size + symbols[symbols[left].next].size;
    if (size > max_piece_bytes_) return;
    const auto it = pieces_.find(text.substr(symbols[left].begin, size));
    if (it != pieces_.end()) queue.push({it->second.score, left, size});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (left.size + right.size != top.size) continue;
    left.size = top.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    consider(left.previous);
    consider(top.left);
  }
  bool unknown_run = false;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    const absl::string_view piece = text.substr(symbols[i].begin, symbols[i].size);
    const auto it = pieces_.find(piece);
    if (it != pieces_.end()) {
      ids->push_back(it->second.id);
      unknown_run = false;
    } else {
      EncodeUnknown(piece, &unknown_run, ids);
    }
  }
}

}  // namespace baton
