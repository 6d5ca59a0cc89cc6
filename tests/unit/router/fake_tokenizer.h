// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_ROUTER_FAKE_TOKENIZER_H_
#define BATON_TESTS_UNIT_ROUTER_FAKE_TOKENIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "common/text/tokenizer.h"

namespace baton::testing {

// A token per byte (0 to 255), an end token (256, special), and whatever texts a test adds from 257 on.
class FakeTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kEnd = 256;

  explicit FakeTokenizer(std::vector<std::string> more = {}) {
    for (int i = 0; i < 256; ++i) texts_.emplace_back(1, static_cast<char>(i));
    texts_.emplace_back("<end>");
    for (std::string& text : more) texts_.push_back(std::move(text));
    special_.eos = kEnd;
    special_.end_of_generation = {kEnd};
  }

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  int vocab_size() const override { return static_cast<int>(texts_.size()); }
  absl::string_view TokenBytes(int32_t id) const override { return TokenText(id); }
  absl::string_view TokenText(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? absl::string_view(texts_[static_cast<size_t>(id)]) : absl::string_view();
  }
  std::optional<int32_t> FindToken(absl::string_view) const override { return std::nullopt; }
  bool IsSpecial(int32_t id) const override { return id == kEnd; }
  bool IsAdded(int32_t id) const override { return id == kEnd; }
  const SpecialTokens& special_tokens() const override { return special_; }
  const LeadingRule& leading_rule() const override { return leading_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::vector<std::string> texts_;
  SpecialTokens special_;
  LeadingRule leading_;
  std::string fingerprint_ = "fake";
};

}  // namespace baton::testing

#endif  // BATON_TESTS_UNIT_ROUTER_FAKE_TOKENIZER_H_
