// SPDX-License-Identifier: Apache-2.0
#include "common/text/added_tokens.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/text/unicode.h"

namespace baton {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// The code point that ends at `end` > 0; `*begin` becomes its first byte.
char32_t CodePointBefore(absl::string_view text, size_t end, size_t* begin) {
  *begin = end - 1;
  while (*begin > 0 && IsContinuation(text[*begin])) --*begin;
  size_t pos = *begin;
  return NextCodePoint(text, &pos);
}

bool TouchesWord(absl::string_view text, size_t begin, size_t end) {
  size_t pos = 0;
  if (begin > 0 && IsWordCharacter(CodePointBefore(text, begin, &pos))) return true;
  pos = end;
  return end < text.size() && IsWordCharacter(NextCodePoint(text, &pos));
}

size_t SkipSpaceLeft(absl::string_view text, size_t begin, size_t bound) {
  while (begin > bound) {
    size_t pos = 0;
    if (!IsWhitespace(CodePointBefore(text, begin, &pos))) break;
    begin = pos;
  }
  return std::max(begin, bound);
}

size_t SkipSpaceRight(absl::string_view text, size_t end) {
  while (end < text.size()) {
    size_t pos = end;
    if (!IsWhitespace(NextCodePoint(text, &pos))) break;
    end = pos;
  }
  return end;
}

}  // namespace

int32_t ByteTrie::Child(int32_t node, uint8_t byte) const {
  if (node == 0) return root_children_[byte];
  int32_t child = nodes_[node].first_child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void ByteTrie::Add(absl::string_view text, int32_t value) {
  int32_t node = 0;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({-1, -1, nodes_[node].first_child, byte});
      nodes_[node].first_child = child;
      if (node == 0) root_children_[byte] = child;
    }
    node = child;
  }
  if (node != 0) nodes_[node].value = value;
}

ByteTrie::Match ByteTrie::Find(absl::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    Match match;
    int32_t node = 0;
    for (size_t pos = begin; pos < text.size(); ++pos) {
      node = Child(node, static_cast<uint8_t>(text[pos]));
      if (node < 0) break;
      if (nodes_[node].value >= 0) match = {begin, pos + 1, nodes_[node].value};
    }
    if (match.value >= 0) return match;
  }
  return {};
}

absl::StatusOr<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens, const Normalizer& normalizer) {
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    added.by_id_.emplace(token.id, i);
    added.by_content_.emplace(token.content, i);
    if (!token.normalized) {
      added.raw_.Add(token.content, static_cast<int32_t>(i));
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const std::string content, normalizer.Apply(token.content));
    added.normalized_.Add(content, static_cast<int32_t>(i));
  }
  return added;
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::FindContent(absl::string_view content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

std::vector<AddedTokens::Section> AddedTokens::Split(const ByteTrie& trie, absl::string_view text,
                                                     bool parse_special) const {
  std::vector<Section> sections;
  size_t done = 0;
  if (!trie.empty()) {
    for (ByteTrie::Match match = trie.Find(text, 0); match.value >= 0; match = trie.Find(text, match.end)) {
      const AddedToken& token = tokens_[match.value];
      if (token.special && !parse_special) continue;
      if (token.single_word && TouchesWord(text, match.begin, match.end)) continue;
      size_t begin = std::max(match.begin, done), end = match.end;  // An rstrip before may reach into the match.
      if (token.lstrip) begin = SkipSpaceLeft(text, begin, done);
      if (token.rstrip) end = SkipSpaceRight(text, end);
      if (begin > done) sections.push_back({done, begin, -1});
      sections.push_back({begin, end, token.id});
      done = std::max(done, end);
    }
  }
  if (done < text.size()) sections.push_back({done, text.size(), -1});
  return sections;
}

}  // namespace baton
