// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/gguf_vocabulary.h"

namespace baton {
namespace {

std::string Key(absl::string_view name) { return absl::StrCat("tokenizer.ggml.", name); }

absl::StatusOr<std::optional<int64_t>> OptionalId(const GgufFile& file, absl::string_view name) {
  if (!file.Has(Key(name))) return std::optional<int64_t>();
  BATON_ASSIGN_OR_RETURN(const int64_t value, file.GetI64(Key(name)));
  return std::optional<int64_t>(value);
}

absl::StatusOr<std::optional<bool>> OptionalBool(const GgufFile& file, absl::string_view name) {
  if (!file.Has(Key(name))) return std::optional<bool>();
  BATON_ASSIGN_OR_RETURN(const bool value, file.GetBool(Key(name)));
  return std::optional<bool>(value);
}

absl::StatusOr<std::vector<std::string>> Strings(const GgufFile& file, absl::string_view name) {
  BATON_ASSIGN_OR_RETURN(const std::vector<absl::string_view> views, file.GetStringArray(Key(name)));
  return std::vector<std::string>(views.begin(), views.end());
}

}  // namespace

absl::StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufFile& file) {
  GgufVocabulary out;
  BATON_ASSIGN_OR_RETURN(const absl::string_view model, file.GetString(Key("model")));
  out.model = std::string(model);
  BATON_ASSIGN_OR_RETURN(const absl::string_view pre, file.GetStringOr(Key("pre"), ""));
  out.pre = std::string(pre);
  BATON_ASSIGN_OR_RETURN(out.tokens, Strings(file, "tokens"));
  if (file.Has(Key("merges"))) {
    BATON_ASSIGN_OR_RETURN(out.merges, Strings(file, "merges"));
  }
  if (file.Has(Key("scores"))) {
    BATON_ASSIGN_OR_RETURN(out.scores, file.GetF32Array(Key("scores")));
  }
  if (file.Has(Key("token_type"))) {
    BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.GetI64Array(Key("token_type")));
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] < 0 || types[i] > kGgufByte) {
        return absl::InvalidArgumentError(absl::StrCat(Key("token_type"), "[", i, "]: unknown type ", types[i]));
      }
      out.token_types.push_back(static_cast<int32_t>(types[i]));
    }
  }
  BATON_ASSIGN_OR_RETURN(out.bos, OptionalId(file, "bos_token_id"));
  BATON_ASSIGN_OR_RETURN(out.eos, OptionalId(file, "eos_token_id"));
  BATON_ASSIGN_OR_RETURN(out.eot, OptionalId(file, "eot_token_id"));
  BATON_ASSIGN_OR_RETURN(out.eom, OptionalId(file, "eom_token_id"));
  BATON_ASSIGN_OR_RETURN(out.unk, OptionalId(file, "unknown_token_id"));
  BATON_ASSIGN_OR_RETURN(out.add_bos, OptionalBool(file, "add_bos_token"));
  BATON_ASSIGN_OR_RETURN(out.add_eos, OptionalBool(file, "add_eos_token"));
  BATON_ASSIGN_OR_RETURN(out.add_space_prefix, OptionalBool(file, "add_space_prefix"));
  return out;
}

}  // namespace baton
