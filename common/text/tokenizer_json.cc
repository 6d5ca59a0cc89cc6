// SPDX-License-Identifier: Apache-2.0
#include "common/text/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/pipeline_tokenizer.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 8;

absl::StatusOr<BpeOptions> ParseBpeOptions(const json& model) {
  BpeOptions options;
  BATON_ASSIGN_OR_RETURN(options.ignore_merges, BoolField(model, "ignore_merges", false, "model"));
  BATON_ASSIGN_OR_RETURN(options.byte_fallback, BoolField(model, "byte_fallback", false, "model"));
  BATON_ASSIGN_OR_RETURN(options.fuse_unk, BoolField(model, "fuse_unk", false, "model"));
  BATON_ASSIGN_OR_RETURN(const std::string unk, StringField(model, "unk_token", "", "model"));
  if (!unk.empty()) options.unk_token = unk;
  BATON_ASSIGN_OR_RETURN(options.continuing_subword_prefix,
                         StringField(model, "continuing_subword_prefix", "", "model"));
  BATON_ASSIGN_OR_RETURN(options.end_of_word_suffix, StringField(model, "end_of_word_suffix", "", "model"));
  const json dropout = model.value("dropout", json());
  if (dropout.is_number() && dropout.get<double>() != 0) {
    return absl::InvalidArgumentError("model.dropout: encoding must not be random, needs null or 0");
  }
  return options;
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) return absl::InvalidArgumentError("added_tokens: needs a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string key = absl::StrCat("added_tokens[", i, "]");
    const json& value = list[i];
    if (!value.is_object()) return absl::InvalidArgumentError(absl::StrCat(key, ": needs an object"));
    AddedToken token;
    BATON_ASSIGN_OR_RETURN(const int64_t id, IntField(value, "id", -1, key));
    if (id < 0 || id > Vocabulary::kMaxId) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".id: ", id, " not within 0..", Vocabulary::kMaxId));
    }
    token.id = static_cast<int32_t>(id);
    BATON_ASSIGN_OR_RETURN(token.content, StringField(value, "content", "", key));
    BATON_ASSIGN_OR_RETURN(token.special, BoolField(value, "special", false, key));
    BATON_ASSIGN_OR_RETURN(token.lstrip, BoolField(value, "lstrip", false, key));
    BATON_ASSIGN_OR_RETURN(token.rstrip, BoolField(value, "rstrip", false, key));
    BATON_ASSIGN_OR_RETURN(token.single_word, BoolField(value, "single_word", false, key));
    BATON_ASSIGN_OR_RETURN(token.normalized, BoolField(value, "normalized", !token.special, key));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// What the post-processor puts around a single text.
class PostProcessor {
 public:
  std::vector<int32_t> prefix, suffix;

  absl::Status Add(const json& value, const std::string& key, int depth) {
    if (value.is_null()) return absl::OkStatus();
    BATON_ASSIGN_OR_RETURN(const std::string type, StepType(value, key));
    if (type == "ByteLevel") return absl::OkStatus();  // Moves offsets only.
    if (type == "TemplateProcessing") return AddTemplate(value, key);
    if (type == "RobertaProcessing" || type == "BertProcessing") {
      BATON_ASSIGN_OR_RETURN(const int32_t cls, PairId(value, "cls", key));
      BATON_ASSIGN_OR_RETURN(const int32_t sep, PairId(value, "sep", key));
      prefix.insert(prefix.begin(), cls);
      suffix.push_back(sep);
      return absl::OkStatus();
    }
    if (type != "Sequence") {
      return absl::InvalidArgumentError(absl::StrCat(key, ": unknown post-processor type '", type, "'"));
    }
    const auto list = value.find("processors");
    if (list == value.end() || !list->is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".processors: needs a list"));
    }
    if (depth >= kMaxNesting)
      return absl::InvalidArgumentError(absl::StrCat(key, ": nested deeper than ", kMaxNesting));
    for (size_t i = 0; i < list->size(); ++i) {
      BATON_RETURN_IF_ERROR(Add((*list)[i], absl::StrCat(key, ".processors[", i, "]"), depth + 1));
    }
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<int32_t> ToId(const json& value, const std::string& key) {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > Vocabulary::kMaxId) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": needs a token id"));
    }
    return value.get<int32_t>();
  }

  static absl::StatusOr<int32_t> PairId(const json& value, const char* name, const std::string& key) {
    const json pair = value.value(name, json());
    if (!pair.is_array() || pair.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".", name, ": needs [text, id]"));
    }
    return ToId(pair[1], absl::StrCat(key, ".", name));
  }

  absl::Status AddTemplate(const json& value, const std::string& key) {
    const json single = value.value("single", json());
    const json special = value.value("special_tokens", json::object());
    if (!single.is_array() || !special.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": needs a list `single` and an object `special_tokens`"));
    }
    std::vector<int32_t> before, after;
    int num_sequences = 0;
    for (size_t i = 0; i < single.size(); ++i) {
      const std::string piece_key = absl::StrCat(key, ".single[", i, "]");
      const json& piece = single[i];
      if (piece.is_object() && piece.contains("Sequence")) {
        ++num_sequences;
        continue;
      }
      if (!piece.is_object() || !piece.contains("SpecialToken") || !piece["SpecialToken"].is_object()) {
        return absl::InvalidArgumentError(absl::StrCat(piece_key, ": needs a Sequence or a SpecialToken"));
      }
      BATON_ASSIGN_OR_RETURN(const std::string name, StringField(piece["SpecialToken"], "id", "", piece_key));
      const json entry = special.value(name, json());
      const json ids = entry.is_object() ? entry.value("ids", json()) : json();
      if (!ids.is_array()) {
        return absl::InvalidArgumentError(absl::StrCat(key, ".special_tokens: no ids for '", name, "'"));
      }
      for (const json& id : ids) {
        BATON_ASSIGN_OR_RETURN(const int32_t token, ToId(id, absl::StrCat(key, ".special_tokens['", name, "']")));
        (num_sequences == 0 ? before : after).push_back(token);
      }
    }
    if (num_sequences != 1) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".single: needs one Sequence, has ", num_sequences));
    }
    prefix.insert(prefix.begin(), before.begin(), before.end());
    suffix.insert(suffix.end(), after.begin(), after.end());
    return absl::OkStatus();
  }
};

absl::StatusOr<std::optional<int32_t>> FindRole(const TokenizerParts& parts, absl::string_view role,
                                                const std::string& text) {
  if (text.empty()) return std::optional<int32_t>();
  for (const AddedToken& token : parts.added_tokens) {
    if (token.content == text) return std::optional<int32_t>(token.id);
  }
  if (const auto id = parts.vocabulary->Find(text)) return std::optional<int32_t>(*id);
  return absl::InvalidArgumentError(absl::StrCat(role, " '", text, "' is no token of the vocabulary"));
}

absl::Status AssignRoles(const TokenRoles& roles, TokenizerParts* parts) {
  SpecialTokens& special = parts->special_tokens;
  BATON_ASSIGN_OR_RETURN(special.bos, FindRole(*parts, "bos_token", roles.bos));
  BATON_ASSIGN_OR_RETURN(special.eos, FindRole(*parts, "eos_token", roles.eos));
  if (!special.bos && !parts->prefix_ids.empty()) special.bos = parts->prefix_ids.front();
  for (const int64_t id : roles.end_of_generation) {
    if (id < 0 || id > Vocabulary::kMaxId) {
      return absl::InvalidArgumentError(absl::StrCat("eos_token_id ", id, " not within 0..", Vocabulary::kMaxId));
    }
    special.end_of_generation.push_back(static_cast<int32_t>(id));
  }
  if (special.eos || !special.end_of_generation.empty()) return absl::OkStatus();
  for (const AddedToken& token : parts->added_tokens) {
    if (token.special && IsEndTokenName(token.content)) special.end_of_generation.push_back(token.id);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsEndTokenName(absl::string_view text) {
  static constexpr std::array<absl::string_view, 13> kNames = {"</s>",
                                                               "<|eot_id|>",
                                                               "<|im_end|>",
                                                               "<|end|>",
                                                               "<end_of_turn>",
                                                               "<eos>",
                                                               "<|endoftext|>",
                                                               "<|end_of_text|>",
                                                               "<|eom_id|>",
                                                               "<EOT>",
                                                               "<|return|>",
                                                               "<|END_OF_TURN_TOKEN|>",
                                                               "<\xEF\xBD\x9C"
                                                               "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};
  return std::find(kNames.begin(), kNames.end(), text) != kNames.end();
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> TokenizerFromJson(absl::string_view text, const TokenRoles& roles) {
  BATON_ASSIGN_OR_RETURN(TokenizerJson file, ReadTokenizerJson(text));
  const json model = file.rest.value("model", json());
  if (!model.is_object()) return absl::InvalidArgumentError("model: needs an object");
  BATON_ASSIGN_OR_RETURN(const std::string type, StringField(model, "type", "BPE", "model"));
  if (type != "BPE") return absl::InvalidArgumentError(absl::StrCat("model: unknown model type '", type, "'"));
  if (file.vocabulary.empty()) return absl::InvalidArgumentError("model.vocab: no tokens");

  BATON_ASSIGN_OR_RETURN(BpeOptions options, ParseBpeOptions(model));
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const Vocabulary> vocabulary,
                         Vocabulary::Create(file.vocabulary, "model.vocab"));
  BATON_ASSIGN_OR_RETURN(BpeModel bpe, BpeModel::Create(vocabulary, file.merges, std::move(options), "model.merges"));
  TokenizerParts parts = {.vocabulary = std::move(vocabulary), .model = std::move(bpe)};
  BATON_ASSIGN_OR_RETURN(parts.added_tokens, ParseAddedTokens(file.rest.value("added_tokens", json())));
  BATON_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(file.rest.value("normalizer", json())));
  BATON_ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::FromJson(file.rest.value("pre_tokenizer", json())));
  BATON_ASSIGN_OR_RETURN(parts.decoder, TokenDecoder::FromJson(file.rest.value("decoder", json())));
  PostProcessor post_processor;
  BATON_RETURN_IF_ERROR(post_processor.Add(file.rest.value("post_processor", json()), "post_processor", 0));
  parts.prefix_ids = std::move(post_processor.prefix);
  parts.suffix_ids = std::move(post_processor.suffix);
  BATON_RETURN_IF_ERROR(AssignRoles(roles, &parts));
  for (const char* section : {"model", "added_tokens", "normalizer", "pre_tokenizer", "decoder"}) {
    absl::StrAppend(&parts.description, section, file.rest.value(section, json()).dump(-1, ' ', true));
  }
  for (const auto& [left, right] : file.merges) absl::StrAppend(&parts.description, left, " ", right, "\n");
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, PipelineTokenizer::Create(std::move(parts)));
  return tokenizer;
}

}  // namespace baton
