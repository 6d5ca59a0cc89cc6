// SPDX-License-Identifier: Apache-2.0
#include "common/text/bpe_model.h"

#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/unicode.h"

namespace baton {

// One piece of the word, in a doubly linked list by index; id -1 is a piece that was merged into its left neighbour.
struct BpeModel::Symbol {
  int32_t id = 0;
  int32_t previous = -1;
  int32_t next = -1;
};

// The merge of the symbol at `position` with its right neighbour.
struct BpeModel::Candidate {
  uint32_t rank;
  int32_t position;
  int32_t id;
  // std::priority_queue has the greatest on top: lowest rank first, then leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

absl::StatusOr<BpeModel> BpeModel::Create(std::shared_ptr<const Vocabulary> vocabulary,
                                          const std::vector<Merge>& merges, BpeOptions options,
                                          absl::string_view merges_key) {
  BpeModel model;
  model.vocabulary_ = std::move(vocabulary);
  model.options_ = std::move(options);
  model.merges_.reserve(merges.size());
  const size_t prefix = model.options_.continuing_subword_prefix.size();
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto find = [&](absl::string_view text) -> absl::StatusOr<int32_t> {
      if (const auto id = model.vocabulary_->Find(text)) return *id;
      return absl::InvalidArgumentError(absl::StrCat(merges_key, "[", rank, "] ('", left, "' + '", right, "'): '", text,
                                                     "' is no token of the vocabulary"));
    };
    const auto left_id = find(left);
    if (!left_id.ok()) return left_id.status();
    const auto right_id = find(right);
    if (!right_id.ok()) return right_id.status();
    const auto merged_id = find(absl::StrCat(left, right.size() >= prefix ? right.substr(prefix) : ""));
    if (!merged_id.ok()) return merged_id.status();
    model.merges_[PairKey(*left_id, *right_id)] = {static_cast<uint32_t>(rank), *merged_id};
  }
  if (model.options_.unk_token) {
    model.unk_id_ = model.vocabulary_->Find(*model.options_.unk_token);
    if (!model.unk_id_) {
      return absl::InvalidArgumentError(
          absl::StrCat("unk_token '", *model.options_.unk_token, "' is no token of the vocabulary"));
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_ids_[byte] = model.vocabulary_->Find(absl::StrFormat("<0x%02X>", byte)).value_or(-1);
  }
  for (size_t c = 0; c < model.character_ids_.size(); ++c) {
    std::string text;
    AppendUtf8(static_cast<char32_t>(c), &text);
    model.character_ids_[c] = model.vocabulary_->Find(text).value_or(-1);
  }
  return model;
}

std::optional<int32_t> BpeModel::FindCharacter(absl::string_view character, bool first, bool last) const {
  const std::string& prefix = options_.continuing_subword_prefix;
  const std::string& suffix = options_.end_of_word_suffix;
  if ((!first && !prefix.empty()) || (last && !suffix.empty())) {
    return vocabulary_->Find(absl::StrCat(first ? "" : prefix, character, last ? suffix : ""));
  }
  if (character.size() <= 2) {
    size_t pos = 0;
    const char32_t code_point = NextCodePoint(character, &pos);
    if (code_point < character_ids_.size()) {
      const int32_t id = character_ids_[code_point];
      return id < 0 ? std::nullopt : std::optional<int32_t>(id);
    }
  }
  return vocabulary_->Find(character);
}

void BpeModel::SplitIntoSymbols(absl::string_view word, std::vector<Symbol>* symbols) const {
  const auto add = [symbols](int32_t id) {
    const auto index = static_cast<int32_t>(symbols->size());
    if (index > 0) symbols->back().next = index;
    symbols->push_back({id, index - 1, -1});
  };
  bool unknown_run = false;
  for (size_t pos = 0; pos < word.size();) {
    const size_t begin = pos;
    NextCodePoint(word, &pos);
    const absl::string_view character = word.substr(begin, pos - begin);
    if (const auto id = FindCharacter(character, begin == 0, pos == word.size())) {
      add(*id);
      unknown_run = false;
      continue;
    }
    bool all_bytes = options_.byte_fallback;
    for (const char c : character) all_bytes = all_bytes && byte_ids_[static_cast<uint8_t>(c)] >= 0;
    if (all_bytes) {
      for (const char c : character) add(byte_ids_[static_cast<uint8_t>(c)]);
      unknown_run = false;
    } else if (unk_id_ && !(unknown_run && options_.fuse_unk)) {
      add(*unk_id_);
      unknown_run = true;
    }
  }
}

void BpeModel::MergeAll(std::vector<Symbol>* symbols) const {
  std::vector<Candidate> storage;
  storage.reserve(symbols->size());
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));
  const auto consider = [&](int32_t position) {
    const Symbol& left = (*symbols)[position];
    const auto it = merges_.find(PairKey(left.id, (*symbols)[left.next].id));
    if (it != merges_.end()) queue.push({it->second.rank, position, it->second.id});
  };
  for (size_t i = 0; i + 1 < symbols->size(); ++i) consider(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = (*symbols)[top.position];
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = (*symbols)[left.next];
    // Stale if the pair is another by now. Like `tokenizers`, only the result is compared.
    const auto it = merges_.find(PairKey(left.id, right.id));
    if (it == merges_.end() || it->second.id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) {
      (*symbols)[left.next].previous = top.position;
      consider(top.position);
    }
    if (left.previous >= 0) consider(left.previous);
  }
}

void BpeModel::Encode(absl::string_view word, std::vector<int32_t>* ids) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_->Find(word)) {
      ids->push_back(*id);
      return;
    }
  }
  static thread_local std::vector<Symbol> symbols;
  symbols.clear();
  SplitIntoSymbols(word, &symbols);
  MergeAll(&symbols);
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
  if (symbols.capacity() > 65536) std::vector<Symbol>().swap(symbols);
}

}  // namespace baton
