// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/token_trie.h"

#include <algorithm>

namespace baton {

TokenTrie::TokenTrie(const std::vector<absl::string_view>& bytes) {
  begins_.reserve(bytes.size() + 1);
  for (const absl::string_view token : bytes) {
    begins_.push_back(static_cast<uint32_t>(arena_.size()));
    if (token.size() <= kMaxTokenBytes) arena_.append(token.data(), token.size());
  }
  begins_.push_back(static_cast<uint32_t>(arena_.size()));
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (!BytesOf(id).empty()) tokens_.push_back(id);
  }
  std::ranges::sort(tokens_, [this](int32_t a, int32_t b) {
    const absl::string_view left = BytesOf(a), right = BytesOf(b);
    return left != right ? left < right : a < b;
  });
  std::vector<uint32_t> open;  // The nodes of the last token, from the root on.
  absl::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const absl::string_view token = BytesOf(tokens_[i]);
    max_token_bytes_ = std::max(max_token_bytes_, token.size());
    size_t common = 0;
    while (common < std::min(last.size(), token.size()) && last[common] == token[common]) ++common;
    close(common);
    for (size_t depth = common; depth < token.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0,
                        .first_token = static_cast<uint32_t>(i),
                        .num_tokens = 0,
                        .depth = static_cast<uint16_t>(depth + 1),
                        .byte = static_cast<uint8_t>(token[depth])});
    }
    ++nodes_[open.back()].num_tokens;
    last = token;
  }
  close(0);
}

absl::string_view TokenTrie::BytesOf(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return absl::string_view(arena_).substr(begins_[id], begins_[id + 1] - begins_[id]);
}

size_t TokenTrie::memory_bytes() const {
  return arena_.capacity() + begins_.capacity() * sizeof(uint32_t) + nodes_.capacity() * sizeof(Node) +
         tokens_.capacity() * sizeof(int32_t);
}

}  // namespace baton
