// SPDX-License-Identifier: Apache-2.0
#include "common/text/pipeline_tokenizer.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/text/unicode.h"

namespace baton {

absl::StatusOr<std::unique_ptr<const PipelineTokenizer>> PipelineTokenizer::Create(TokenizerParts parts) {
  std::unique_ptr<PipelineTokenizer> tokenizer(new PipelineTokenizer(std::move(parts)));
  TokenizerParts& own = tokenizer->parts_;
  SpecialTokens& special = own.special_tokens;
  special.adds_bos = special.bos && !own.prefix_ids.empty() && own.prefix_ids.front() == *special.bos;
  for (const auto& id : {special.eos, special.eot}) {
    if (id) special.end_of_generation.push_back(*id);
  }
  std::sort(special.end_of_generation.begin(), special.end_of_generation.end());
  special.end_of_generation.erase(std::unique(special.end_of_generation.begin(), special.end_of_generation.end()),
                                  special.end_of_generation.end());
  BATON_ASSIGN_OR_RETURN(tokenizer->added_, AddedTokens::Create(own.added_tokens, own.normalizer));
  BATON_RETURN_IF_ERROR(tokenizer->CheckIds());
  BATON_RETURN_IF_ERROR(tokenizer->FillBytes());
  tokenizer->fingerprint_ = tokenizer->ComputeFingerprint();
  std::string().swap(own.description);  // Megabytes of merges.
  return tokenizer;
}

absl::Status PipelineTokenizer::CheckIds() const {
  for (size_t i = 0; i < added_.tokens().size(); ++i) {
    const AddedToken& token = added_.tokens()[i];
    const auto error = [&](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens[", i, "] ('", token.content, "', id ", token.id, ")", what...));
    };
    if (token.id < 0 || token.id > Vocabulary::kMaxId) return error(": id not within 0..", Vocabulary::kMaxId);
    if (token.content.empty()) return error(": empty content");
    if (added_.FindContent(token.content)->id != token.id) {
      return error(": the same content has id ", added_.FindContent(token.content)->id);
    }
    if (added_.Find(token.id)->content != token.content) {
      return error(": the same id has content '", added_.Find(token.id)->content, "'");
    }
    const auto in_vocabulary = parts_.vocabulary->Find(token.content);
    if (in_vocabulary && *in_vocabulary != token.id) return error(": the vocabulary has it as id ", *in_vocabulary);
  }
  const auto check = [this](absl::string_view role, int32_t id) -> absl::Status {
    if (IsAdded(id) || parts_.vocabulary->Has(id)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(role, ": id ", id, " has no token"));
  };
  for (const int32_t id : parts_.prefix_ids) BATON_RETURN_IF_ERROR(check("begin of text", id));
  for (const int32_t id : parts_.suffix_ids) BATON_RETURN_IF_ERROR(check("end of text", id));
  if (parts_.special_tokens.bos) BATON_RETURN_IF_ERROR(check("bos", *parts_.special_tokens.bos));
  for (const int32_t id : parts_.special_tokens.end_of_generation) {
    BATON_RETURN_IF_ERROR(check("end of generation", id));
  }
  return absl::OkStatus();
}

absl::Status PipelineTokenizer::FillBytes() {
  int32_t size = parts_.vocabulary->size();
  for (const AddedToken& token : added_.tokens()) size = std::max(size, token.id + 1);
  bytes_.resize(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    const absl::string_view text = TokenText(id);
    if (text.empty()) continue;
    std::string bytes(text);
    const AddedToken* added = added_.Find(id);
    // Like `tokenizers` 0.23: what is looked for in normalised text also comes out normalised.
    if (added != nullptr && added->normalized) {
      BATON_ASSIGN_OR_RETURN(bytes, parts_.normalizer.Apply(bytes));
    }
    if (added == nullptr || !parts_.raw_added_tokens) {
      BATON_ASSIGN_OR_RETURN(bytes, parts_.decoder.BytesOf(bytes));
    }
    if (arena_.size() + bytes.size() > UINT32_MAX) return absl::InvalidArgumentError("over 4 GiB of token text");
    bytes_[id] = {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(bytes.size())};
    arena_ += bytes;
  }
  return absl::OkStatus();
}

std::string PipelineTokenizer::ComputeFingerprint() const {
  // Texts in the order of ids, each with its length, so that no two vocabularies run together.
  std::string all = absl::StrCat(parts_.description, "\n", bytes_.size(), "\n");
  for (size_t id = 0; id < bytes_.size(); ++id) {
    const absl::string_view text = TokenText(static_cast<int32_t>(id));
    absl::StrAppend(&all, text.size(), IsSpecial(static_cast<int32_t>(id)) ? "s" : ":", text);
  }
  for (const int32_t id : parts_.prefix_ids) absl::StrAppend(&all, "<", id);
  for (const int32_t id : parts_.suffix_ids) absl::StrAppend(&all, ">", id);
  return absl::StrFormat("%s-%016x", parts_.source, XXH64(all.data(), all.size(), 0));
}

absl::string_view PipelineTokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return absl::string_view(arena_).substr(bytes_[id].begin, bytes_[id].size);
}

absl::string_view PipelineTokenizer::TokenText(int32_t id) const {
  if (const AddedToken* token = added_.Find(id)) return token->content;
  return parts_.vocabulary->Text(id);
}

std::optional<int32_t> PipelineTokenizer::FindToken(absl::string_view text) const {
  if (const AddedToken* token = added_.FindContent(text)) return token->id;
  return parts_.vocabulary->Find(text);
}

bool PipelineTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* token = added_.Find(id);
  return token != nullptr && token->special;
}

absl::StatusOr<std::vector<int32_t>> PipelineTokenizer::Encode(absl::string_view text,
                                                               const EncodeOptions& options) const {
  BATON_RETURN_IF_ERROR(ValidateUtf8(text, "text"));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  if (options.add_special) ids = parts_.prefix_ids;
  for (const AddedTokens::Section& section : added_.SplitRaw(text, options.parse_special)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    BATON_RETURN_IF_ERROR(EncodeText(text.substr(section.begin, section.end - section.begin), section.begin == 0,
                                     options.parse_special, &ids));
  }
  if (options.add_special) ids.insert(ids.end(), parts_.suffix_ids.begin(), parts_.suffix_ids.end());
  return ids;
}

absl::Status PipelineTokenizer::EncodeText(absl::string_view text, bool at_start, bool parse_special,
                                           std::vector<int32_t>* ids) const {
  BATON_ASSIGN_OR_RETURN(std::string normalized, parts_.normalizer.Apply(text));
  const std::vector<AddedTokens::Section> sections = added_.SplitNormalized(normalized, parse_special);
  if (sections.size() == 1 && sections[0].id < 0) return EncodeWords(std::move(normalized), at_start, ids);
  for (const AddedTokens::Section& section : sections) {
    if (section.id >= 0) {
      ids->push_back(section.id);
      continue;
    }
    BATON_RETURN_IF_ERROR(EncodeWords(normalized.substr(section.begin, section.end - section.begin),
                                      at_start && section.begin == 0, ids));
  }
  return absl::OkStatus();
}

absl::Status PipelineTokenizer::EncodeWords(std::string text, bool at_start, std::vector<int32_t>* ids) const {
  BATON_ASSIGN_OR_RETURN(const Words words, parts_.pre_tokenizer.Apply(std::move(text), at_start));
  for (const Words::Word& word : words.words) {
    const absl::string_view piece = absl::string_view(words.text).substr(word.begin, word.end - word.begin);
    std::visit([&](const auto& model) { model.Encode(piece, ids); }, parts_.model);
  }
  return absl::OkStatus();
}

}  // namespace baton
