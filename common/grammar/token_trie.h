// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_TOKEN_TRIE_H_
#define BATON_COMMON_GRAMMAR_TOKEN_TRIE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// The bytes of every token that may be part of a constrained answer, as a trie in preorder: one walk finds all tokens that an
// automaton allows, and leaves out a whole subtree where it does not. Immutable; any thread.
class TokenTrie {
 public:
  struct Node {
    uint32_t end;          // The first node behind this one's subtree.
    uint32_t first_token;  // Its own tokens, in tokens().
    uint32_t num_tokens;
    uint16_t depth;  // Bytes from the root: 1 for its children.
    uint8_t byte;
  };
  // Longer tokens are left out.
  static constexpr size_t kMaxTokenBytes = 1024;

  // `bytes`: of each id. Empty: the token has no part in such answers (special tokens, ids without one).
  explicit TokenTrie(const std::vector<absl::string_view>& bytes);

  int vocab_size() const { return static_cast<int>(begins_.size()) - 1; }
  // Empty also for ids outside the vocabulary.
  absl::string_view BytesOf(int32_t id) const;
  const std::vector<Node>& nodes() const { return nodes_; }  // Without the root.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  size_t max_token_bytes() const { return max_token_bytes_; }
  size_t memory_bytes() const;

 private:
  std::string arena_;
  std::vector<uint32_t> begins_;  // [vocab + 1], into arena_.
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;  // In the order of the nodes.
  size_t max_token_bytes_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_TOKEN_TRIE_H_
