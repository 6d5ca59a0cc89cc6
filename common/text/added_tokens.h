// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_ADDED_TOKENS_H_
#define BATON_COMMON_TEXT_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/normalizer.h"

namespace baton {

// A token that is found in the text itself, before words are formed.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // Left alone by EncodeOptions::parse_special = false and by decoding.
  bool lstrip = false;       // Takes the white space in front of it along.
  bool rstrip = false;       // And behind it.
  bool single_word = false;  // Only where no word character touches it.
  bool normalized = false;   // Looked for in the normalised text, by its normalised content.
};

// A set of byte strings searched for at a position. Nodes are in one array, children of a node in a linked list.
class ByteTrie {
 public:
  void Add(absl::string_view text, int32_t value);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    size_t begin = 0, end = 0;
    int32_t value = -1;  // -1: none.
  };
  // The leftmost, and there the longest, text in `text` from `from` on.
  Match Find(absl::string_view text, size_t from) const;

 private:
  struct Node {
    int32_t value = -1;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    uint8_t byte = 0;
  };
  int32_t Child(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<int32_t> root_children_ = std::vector<int32_t>(256, -1);
};

// Cuts text at added tokens. Immutable after Create; any thread.
class AddedTokens {
 public:
  struct Section {
    size_t begin = 0, end = 0;
    int32_t id = -1;  // -1: text.
  };

  static absl::StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  // The whole of `text` as sections in order, none empty: by the tokens that are looked for in raw text.
  std::vector<Section> SplitRaw(absl::string_view text, bool parse_special) const {
    return Split(raw_, text, parse_special);
  }
  // The same by the tokens that are looked for in normalised text.
  std::vector<Section> SplitNormalized(absl::string_view text, bool parse_special) const {
    return Split(normalized_, text, parse_special);
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* Find(int32_t id) const;
  const AddedToken* FindContent(absl::string_view content) const;

 private:
  std::vector<Section> Split(const ByteTrie& trie, absl::string_view text, bool parse_special) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<int32_t, size_t> by_id_;
  absl::flat_hash_map<std::string, size_t> by_content_;
  ByteTrie raw_, normalized_;  // Values are indices into tokens_.
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_ADDED_TOKENS_H_
