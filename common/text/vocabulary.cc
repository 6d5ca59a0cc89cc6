// SPDX-License-Identifier: Apache-2.0
#include "common/text/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::shared_ptr<const Vocabulary>> Vocabulary::Create(const std::vector<Entry>& entries,
                                                                     absl::string_view key) {
  std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  size_t bytes = 0;
  int64_t max_id = -1;
  for (const Entry& entry : entries) {
    if (entry.id < 0 || entry.id > kMaxId) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": token '", entry.text, "' has id ", entry.id, ", not within 0..", kMaxId));
    }
    bytes += entry.text.size();
    max_id = std::max(max_id, entry.id);
  }
  if (bytes > UINT32_MAX) return absl::InvalidArgumentError(absl::StrCat(key, ": over 4 GiB of token text"));
  vocabulary->arena_.reserve(bytes);
  vocabulary->tokens_.resize(static_cast<size_t>(max_id + 1));
  vocabulary->ids_.reserve(entries.size());
  for (const Entry& entry : entries) {
    Token& token = vocabulary->tokens_[static_cast<size_t>(entry.id)];
    if (token.present) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": id ", entry.id, " belongs to both '",
                                                     vocabulary->Text(entry.id), "' and '", entry.text, "'"));
    }
    token = {static_cast<uint32_t>(vocabulary->arena_.size()), static_cast<uint32_t>(entry.text.size()), true};
    vocabulary->arena_ += entry.text;
    vocabulary->max_token_bytes_ = std::max(vocabulary->max_token_bytes_, entry.text.size());
    if (entry.text.empty()) continue;
    const auto [it, inserted] = vocabulary->ids_.emplace(vocabulary->Text(entry.id), static_cast<int32_t>(entry.id));
    if (!inserted) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": token '", entry.text, "' occurs twice, as id ", it->second, " and id ", entry.id));
    }
  }
  return vocabulary;
}

absl::string_view Vocabulary::Text(int64_t id) const {
  if (!Has(id)) return {};
  const Token& token = tokens_[static_cast<size_t>(id)];
  return absl::string_view(arena_).substr(token.begin, token.size);
}

}  // namespace baton
