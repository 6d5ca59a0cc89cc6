// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_VOCABULARY_H_
#define BATON_COMMON_TEXT_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Token texts by id and ids by text. Immutable; any thread. Views live as long as it does.
class Vocabulary {
 public:
  static constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;

  struct Entry {
    std::string text;
    int64_t id = 0;
  };

  // `key` is what messages call the table. Ids may have holes. An empty text is a token that no lookup finds.
  //   INVALID_ARGUMENT  an id below 0 or over kMaxId, two tokens with one id, two ids for one text.
  static absl::StatusOr<std::shared_ptr<const Vocabulary>> Create(const std::vector<Entry>& entries,
                                                                  absl::string_view key);

  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int size() const { return static_cast<int>(tokens_.size()); }  // One more than the highest id.
  bool Has(int64_t id) const { return id >= 0 && id < size() && tokens_[id].present; }
  absl::string_view Text(int64_t id) const;  // Empty for an id without a token.
  std::optional<int32_t> Find(absl::string_view text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? std::nullopt : std::optional<int32_t>(it->second);
  }
  size_t max_token_bytes() const { return max_token_bytes_; }

 private:
  struct Token {
    uint32_t begin = 0;
    uint32_t size = 0;
    bool present = false;
  };
  Vocabulary() = default;

  std::string arena_;
  std::vector<Token> tokens_;
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  size_t max_token_bytes_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_VOCABULARY_H_
