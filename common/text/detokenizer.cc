// SPDX-License-Identifier: Apache-2.0
#include "common/text/detokenizer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"

namespace baton {

std::string Detokenizer::Lead(int32_t id, absl::string_view bytes) {
  const LeadingRule& rule = tokenizer_->leading_rule();
  const bool first = first_;
  first_ = false;
  if (rule.kind == LeadingRule::Kind::kStrip && stripping_ && !rule.content.empty()) {
    std::string text = absl::StrCat(withheld_, bytes);
    absl::string_view left = text;
    while (num_stripped_ < rule.count && absl::StartsWith(left, rule.content)) {
      left.remove_prefix(rule.content.size());
      ++num_stripped_;
    }
    withheld_.clear();
    if (num_stripped_ < rule.count && absl::StartsWith(rule.content, left)) {
      withheld_ = std::string(left);
      return std::string();
    }
    stripping_ = false;
    return std::string(left);
  }
  if (rule.kind == LeadingRule::Kind::kFirstToken && first && !tokenizer_->IsAdded(id)) {
    return absl::StrReplaceAll(bytes, {{" ", ""}});
  }
  return absl::StrCat(first ? "" : rule.separator, bytes);
}

std::string Detokenizer::Push(int32_t id) {
  std::string out;
  if (!keep_special_ && tokenizer_->IsSpecial(id)) return out;
  const absl::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return out;
  sanitizer_.Push(Lead(id, bytes), &out);
  return out;
}

std::string Detokenizer::Finish() {
  std::string out;
  sanitizer_.Push(withheld_, &out);
  sanitizer_.Finish(&out);
  withheld_.clear();
  return out;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool keep_special) const {
  Detokenizer detokenizer(this, keep_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id);
  text += detokenizer.Finish();
  return text;
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer, absl::string_view text,
                                                  const EncodeOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, options));
  const SpecialTokens& special = tokenizer.special_tokens();
  if (options.add_special && special.adds_bos && ids.size() > 1 && ids[1] == *special.bos) ids.erase(ids.begin());
  return ids;
}

}  // namespace baton
