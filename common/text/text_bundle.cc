// SPDX-License-Identifier: Apache-2.0
#include "common/text/text_bundle.h"

#include <sys/stat.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/format/gguf.h"
#include "common/format/mapped_file.h"
#include "common/text/gguf_vocabulary.h"
#include "common/text/no_tokenizer.h"
#include "common/text/tokenizer_json.h"
#include "common/text/unicode.h"

namespace baton {
namespace {

using nlohmann::json;

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  std::string text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  BATON_RETURN_IF_ERROR(ValidateUtf8(text, path));
  return text;
}

// An optional JSON object; null when the file is absent.
absl::StatusOr<json> ReadOptionalObject(const std::string& path) {
  if (!Exists(path)) return json();
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  absl::StatusOr<json> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": needs an object"));
  return *std::move(value);
}

// A token in a configuration: its text, or an object with the text as "content".
std::optional<std::string> TokenText(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

void CollectTemplateTokens(const json& config, std::map<std::string, std::string>* tokens) {
  if (!config.is_object()) return;
  for (const auto& [name, value] : config.items()) {
    if (!absl::EndsWith(name, "_token")) continue;  // add_bos_token and the like are booleans.
    if (const auto text = TokenText(value)) tokens->emplace(name, *text);
  }
}

// "eos_token_id" of generation_config.json or config.json: a number, a list, or null.
absl::Status CollectEndIds(const json& config, const std::string& path, std::vector<int64_t>* ids) {
  const json value = config.is_object() ? config.value("eos_token_id", json()) : json();
  if (value.is_null()) return absl::OkStatus();
  const json list = value.is_array() ? value : json::array({value});
  for (const json& id : list) {
    if (!id.is_number_integer())
      return absl::InvalidArgumentError(absl::StrCat(path, ": eos_token_id: needs integers"));
    ids->push_back(id.get<int64_t>());
  }
  return absl::OkStatus();
}

// "chat_template": the source, or a list of named ones, of which "default" and "tool_use" mean something.
absl::Status CollectTemplates(const json& config, const std::string& path, TextBundle* bundle) {
  const json value = config.is_object() ? config.value("chat_template", json()) : json();
  if (value.is_null()) return absl::OkStatus();
  if (value.is_string()) {
    bundle->chat_template = value.get<std::string>();
    return absl::OkStatus();
  }
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(path, ": chat_template: needs a text or a list of {\"name\": text, \"template\": text}"));
  if (!value.is_array()) return error;
  for (const json& entry : value) {
    if (!entry.is_object()) return error;
    const json name = entry.value("name", json()), source = entry.value("template", json());
    if (!name.is_string() || !source.is_string()) return error;
    if (name == "default") bundle->chat_template = source.get<std::string>();
    if (name == "tool_use") bundle->tool_chat_template = source.get<std::string>();
  }
  return absl::OkStatus();
}

// `tokenizer_path` empty: there is none.
absl::StatusOr<TextBundle> LoadFolder(const std::string& folder, const std::string& tokenizer_path) {
  const std::string config_path = absl::StrCat(folder, "/tokenizer_config.json");
  const std::string generation_path = absl::StrCat(folder, "/generation_config.json");
  const std::string model_path = absl::StrCat(folder, "/config.json");
  const std::string template_path = absl::StrCat(folder, "/chat_template.jinja");
  BATON_ASSIGN_OR_RETURN(const json config, ReadOptionalObject(config_path));
  BATON_ASSIGN_OR_RETURN(const json map, ReadOptionalObject(absl::StrCat(folder, "/special_tokens_map.json")));
  BATON_ASSIGN_OR_RETURN(const json generation, ReadOptionalObject(generation_path));

  TextBundle bundle;
  CollectTemplateTokens(config, &bundle.template_tokens);
  CollectTemplateTokens(map, &bundle.template_tokens);
  TokenRoles roles;
  if (const auto it = bundle.template_tokens.find("bos_token"); it != bundle.template_tokens.end())
    roles.bos = it->second;
  if (const auto it = bundle.template_tokens.find("eos_token"); it != bundle.template_tokens.end())
    roles.eos = it->second;
  BATON_RETURN_IF_ERROR(CollectEndIds(generation, generation_path, &roles.end_of_generation));
  if (generation.is_null()) {
    BATON_ASSIGN_OR_RETURN(const json model, ReadOptionalObject(model_path));
    BATON_RETURN_IF_ERROR(CollectEndIds(model, model_path, &roles.end_of_generation));
  }
  if (tokenizer_path.empty()) {
    bundle.no_text = "the model has no tokenizer.json";
    bundle.tokenizer = std::make_shared<NoTokenizer>(bundle.no_text, roles.end_of_generation);
    return bundle;
  }
  if (Exists(template_path)) {
    BATON_ASSIGN_OR_RETURN(bundle.chat_template, ReadText(template_path));
  } else {
    BATON_RETURN_IF_ERROR(CollectTemplates(config, config_path, &bundle));
  }
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadText(tokenizer_path));
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = TokenizerFromJson(text, roles);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), tokenizer_path);
  bundle.tokenizer = *std::move(tokenizer);
  return bundle;
}

// A GGUF file whose writer left the tokenizer out.
bool HasNoTokenizer(const GgufFile& file) {
  if (!file.Has("tokenizer.ggml.model")) return !file.Has("tokenizer.ggml.tokens");
  const auto model = file.GetString("tokenizer.ggml.model");
  return model.ok() && (*model == "none" || *model == "no_vocab");
}

absl::StatusOr<TextBundle> GgufWithoutText(const GgufFile& file) {
  TextBundle bundle;
  bundle.no_text = "the model's GGUF file has no tokenizer";
  std::vector<int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (!file.Has(key)) continue;
    BATON_ASSIGN_OR_RETURN(const int64_t id, file.GetI64(key));
    ends.push_back(id);
  }
  bundle.tokenizer = std::make_shared<NoTokenizer>(bundle.no_text, ends);
  return bundle;
}

absl::StatusOr<TextBundle> LoadGguf(const std::string& path, bool text_needed) {
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  if (!text_needed && HasNoTokenizer(*file)) return GgufWithoutText(*file);
  absl::StatusOr<GgufVocabulary> vocabulary = ReadGgufVocabulary(*file);
  if (!vocabulary.ok()) return Annotate(vocabulary.status(), path);
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = TokenizerFromGguf(*vocabulary);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  TextBundle bundle;
  bundle.tokenizer = *std::move(tokenizer);
  const auto name = [&](const char* role, std::optional<int64_t> id) {
    if (id && !bundle.tokenizer->TokenText(static_cast<int32_t>(*id)).empty()) {
      bundle.template_tokens[role] = std::string(bundle.tokenizer->TokenText(static_cast<int32_t>(*id)));
    }
  };
  name("bos_token", vocabulary->bos);
  name("eos_token", vocabulary->eos);
  name("unk_token", vocabulary->unk);
  for (const auto& [key, target] : {std::pair("tokenizer.chat_template", &bundle.chat_template),
                                    std::pair("tokenizer.chat_template.tool_use", &bundle.tool_chat_template)}) {
    if (!file->Has(key)) continue;
    absl::StatusOr<absl::string_view> source = file->GetString(key);
    if (!source.ok()) return Annotate(source.status(), path);
    BATON_RETURN_IF_ERROR(ValidateUtf8(*source, absl::StrCat(path, ": ", key)));
    *target = std::string(*source);
  }
  return bundle;
}

absl::StatusOr<TextBundle> Load(absl::string_view path_view, bool text_needed) {
  std::string path(path_view);
  if (!Exists(path)) return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  if (IsFolder(path)) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::string tokenizer_path = absl::StrCat(path, "/tokenizer.json");
    if (Exists(tokenizer_path)) return LoadFolder(path, tokenizer_path);
    if (!text_needed && Exists(absl::StrCat(path, "/config.json"))) return LoadFolder(path, "");
    return absl::NotFoundError(absl::StrCat(path, ": has no tokenizer.json"));
  }
  if (absl::EndsWith(path, ".json")) {
    const size_t slash = path.rfind('/');
    return LoadFolder(slash == std::string::npos ? "." : path.substr(0, slash), path);
  }
  return LoadGguf(path, text_needed);
}

}  // namespace

absl::StatusOr<TextBundle> LoadTextBundle(absl::string_view path) { return Load(path, /*text_needed=*/true); }
absl::StatusOr<TextBundle> LoadModelText(absl::string_view path) { return Load(path, /*text_needed=*/false); }

}  // namespace baton
