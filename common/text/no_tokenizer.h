// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_NO_TOKENIZER_H_
#define BATON_COMMON_TEXT_NO_TOKENIZER_H_

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"

namespace baton {

// Stands for the tokenizer of a model that has none and is served for token ids: no id has a text.
class NoTokenizer final : public Tokenizer {
 public:
  // `reason`: why there is none. `end_of_generation`: ids that end an answer; those that no model can have are left out.
  NoTokenizer(std::string reason, const std::vector<int64_t>& end_of_generation) : reason_(std::move(reason)) {
    for (const int64_t id : end_of_generation) {
      if (id < 0 || id > std::numeric_limits<int32_t>::max()) continue;
      special_.end_of_generation.push_back(static_cast<int32_t>(id));
    }
    std::sort(special_.end_of_generation.begin(), special_.end_of_generation.end());
  }

  //   FAILED_PRECONDITION  always; the reason.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view, const EncodeOptions&) const override {
    return absl::FailedPreconditionError(reason_);
  }
  int vocab_size() const override { return 0; }
  absl::string_view TokenBytes(int32_t) const override { return ""; }
  absl::string_view TokenText(int32_t) const override { return ""; }
  std::optional<int32_t> FindToken(absl::string_view) const override { return std::nullopt; }
  bool IsSpecial(int32_t) const override { return false; }
  bool IsAdded(int32_t) const override { return false; }
  const SpecialTokens& special_tokens() const override { return special_; }
  const LeadingRule& leading_rule() const override { return leading_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  const std::string reason_, fingerprint_;
  const LeadingRule leading_;
  SpecialTokens special_;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_NO_TOKENIZER_H_
