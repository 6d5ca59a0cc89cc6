// SPDX-License-Identifier: Apache-2.0
#include "common/text/gguf_vocabulary.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/text/pipeline_tokenizer.h"
#include "common/text/tokenizer_json.h"
#include "common/text/unicode.h"

namespace baton {
namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581

int32_t TypeOf(const GgufVocabulary& in, size_t id) {
  if (!in.token_types.empty()) return in.token_types[id];
  return ByteTokenValue(in.tokens[id]) >= 0 ? kGgufByte : kGgufNormal;
}

absl::StatusOr<std::optional<int32_t>> CheckId(const GgufVocabulary& in, const char* key, std::optional<int64_t> id) {
  if (!id) return std::optional<int32_t>();
  if (*id < 0 || *id >= static_cast<int64_t>(in.tokens.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.", key, ": id ", *id, " not within the vocabulary of ", in.tokens.size()));
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

absl::Status CheckLength(absl::string_view key, size_t size, size_t num_tokens) {
  if (size == 0 || size == num_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", size, " entries, but ", kTokensKey, " has ", num_tokens));
}

std::vector<AddedToken> AddedTokensOf(const GgufVocabulary& in) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < in.tokens.size(); ++id) {
    const int32_t type = TypeOf(in, id);
    const bool special = type == kGgufControl || type == kGgufUnknown;
    if ((!special && type != kGgufUserDefined) || in.tokens[id].empty()) continue;
    added.push_back({.id = static_cast<int32_t>(id), .content = in.tokens[id], .special = special});
  }
  return added;
}

// Special ids, and what goes around a text.
absl::Status AssignRoles(const GgufVocabulary& in, bool add_bos_default, TokenizerParts* parts) {
  SpecialTokens& special = parts->special_tokens;
  BATON_ASSIGN_OR_RETURN(special.bos, CheckId(in, "bos_token_id", in.bos));
  BATON_ASSIGN_OR_RETURN(special.eos, CheckId(in, "eos_token_id", in.eos));
  BATON_ASSIGN_OR_RETURN(special.eot, CheckId(in, "eot_token_id", in.eot));
  BATON_ASSIGN_OR_RETURN(const auto eom, CheckId(in, "eom_token_id", in.eom));
  BATON_RETURN_IF_ERROR(CheckId(in, "unknown_token_id", in.unk).status());
  if (eom) special.end_of_generation.push_back(*eom);
  // Many files lack eot_token_id.
  for (size_t id = 0; id < in.tokens.size(); ++id) {
    if (TypeOf(in, id) == kGgufControl && IsEndTokenName(in.tokens[id])) {
      special.end_of_generation.push_back(static_cast<int32_t>(id));
    }
  }
  if (in.add_bos.value_or(add_bos_default && special.bos)) {
    if (!special.bos) return absl::InvalidArgumentError("tokenizer.ggml.add_bos_token is true without bos_token_id");
    parts->prefix_ids.push_back(*special.bos);
  }
  if (in.add_eos.value_or(false)) {
    if (!special.eos) return absl::InvalidArgumentError("tokenizer.ggml.add_eos_token is true without eos_token_id");
    parts->suffix_ids.push_back(*special.eos);
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeModel> MakeBpe(const GgufVocabulary& in, std::shared_ptr<const Vocabulary> vocabulary,
                                 bool ignore_merges) {
  std::vector<BpeModel::Merge> merges;
  merges.reserve(in.merges.size());
  for (size_t i = 0; i < in.merges.size(); ++i) {
    const size_t space = in.merges[i].find(' ', 1);
    if (space == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges[", i, "]: '", in.merges[i], "' is not two texts"));
    }
    merges.emplace_back(in.merges[i].substr(0, space), in.merges[i].substr(space + 1));
  }
  return BpeModel::Create(std::move(vocabulary), merges, {.ignore_merges = ignore_merges}, "tokenizer.ggml.merges");
}

absl::StatusOr<SentencePieceModel> MakeSentencePiece(const GgufVocabulary& in) {
  if (in.scores.empty()) return absl::InvalidArgumentError("tokenizer.ggml.scores: missing, needed by model 'llama'");
  std::vector<SentencePieceModel::Piece> pieces;
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  std::optional<int32_t> unk;
  for (size_t id = 0; id < in.tokens.size(); ++id) {
    const int32_t type = TypeOf(in, id);
    const auto token = static_cast<int32_t>(id);
    if (type == kGgufByte) {
      const int byte = ByteTokenValue(in.tokens[id]);
      if (byte < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(kTokensKey, "[", id, "]: '", in.tokens[id], "' is of type byte but not <0xNN>"));
      }
      byte_ids[byte] = token;
    } else if (type == kGgufUnknown) {
      unk = token;
    } else if (type != kGgufControl && !in.tokens[id].empty()) {
      pieces.push_back({in.tokens[id], in.scores[id], token});
    }
  }
  if (in.unk) unk = static_cast<int32_t>(*in.unk);
  return SentencePieceModel::Create(pieces, byte_ids, unk);
}

std::string Describe(const GgufVocabulary& in) {
  std::string out = absl::StrCat("gguf ", in.model, " ", in.pre, " ", in.add_space_prefix.value_or(true), "\n");
  for (const std::string& merge : in.merges) absl::StrAppend(&out, merge, "\n");
  for (const float score : in.scores) absl::StrAppend(&out, score, ",");
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> TokenizerFromGguf(const GgufVocabulary& in) {
  if (in.model != "gpt2" && in.model != "llama") {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.model: unknown tokenizer model '", in.model, "'"));
  }
  if (in.tokens.empty()) return absl::InvalidArgumentError(absl::StrCat(kTokensKey, ": no tokens"));
  BATON_RETURN_IF_ERROR(CheckLength("tokenizer.ggml.scores", in.scores.size(), in.tokens.size()));
  BATON_RETURN_IF_ERROR(CheckLength("tokenizer.ggml.token_type", in.token_types.size(), in.tokens.size()));
  std::vector<Vocabulary::Entry> entries;
  entries.reserve(in.tokens.size());
  for (size_t id = 0; id < in.tokens.size(); ++id) {
    BATON_RETURN_IF_ERROR(ValidateUtf8(in.tokens[id], absl::StrCat(kTokensKey, "[", id, "]")));
    entries.push_back({in.tokens[id], static_cast<int64_t>(id)});
  }
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const Vocabulary> vocabulary, Vocabulary::Create(entries, kTokensKey));
  const std::string description = Describe(in);

  if (in.model == "gpt2") {
    BATON_ASSIGN_OR_RETURN(GgufPreTokenizer pre, FindGgufPreTokenizer(in.pre));
    BATON_ASSIGN_OR_RETURN(BpeModel bpe, MakeBpe(in, vocabulary, pre.ignore_merges));
    TokenizerParts parts = {.vocabulary = std::move(vocabulary),
                            .added_tokens = AddedTokensOf(in),
                            .pre_tokenizer = PreTokenizer(std::move(pre.steps)),
                            .model = std::move(bpe),
                            .decoder = TokenDecoder({TokenDecoder::ByteLevel{}}, {}),
                            .raw_added_tokens = true,
                            .description = description,
                            .source = "gguf"};
    if (pre.nfc) parts.normalizer = Normalizer({NormalForm::kNfc});
    BATON_RETURN_IF_ERROR(AssignRoles(in, pre.add_bos, &parts));
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, PipelineTokenizer::Create(std::move(parts)));
    return tokenizer;
  }

  BATON_RETURN_IF_ERROR(CheckId(in, "unknown_token_id", in.unk).status());
  BATON_ASSIGN_OR_RETURN(SentencePieceModel model, MakeSentencePiece(in));
  const bool space_prefix = in.add_space_prefix.value_or(true);
  std::vector<Normalizer::Step> steps;
  if (space_prefix) steps.push_back(Normalizer::Prepend{kSpaceMark});
  steps.push_back(Normalizer::Replace{Pattern::Literal(" "), kSpaceMark});
  LeadingRule rule;
  if (space_prefix) rule = {.kind = LeadingRule::Kind::kStrip, .content = " ", .count = 1};
  TokenizerParts parts = {
      .vocabulary = std::move(vocabulary),
      .added_tokens = AddedTokensOf(in),
      .normalizer = Normalizer(std::move(steps)),
      .model = std::move(model),
      .decoder = TokenDecoder({TokenDecoder::Replace{Pattern::Literal(kSpaceMark), " "}, TokenDecoder::ByteFallback{}},
                              std::move(rule)),
      .description = description,
      .source = "gguf"};
  BATON_RETURN_IF_ERROR(AssignRoles(in, /*add_bos_default=*/true, &parts));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, PipelineTokenizer::Create(std::move(parts)));
  return tokenizer;
}

}  // namespace baton
