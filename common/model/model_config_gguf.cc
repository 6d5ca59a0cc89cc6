// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/architecture.h"
#include "common/model/model_config.h"

namespace baton {
namespace {

// An integer that fits int; Validate holds it to its real bounds.
absl::StatusOr<int> GetInt(const GgufFile& file, const std::string& key) {
  BATON_ASSIGN_OR_RETURN(const int64_t value, file.GetI64(key));
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is %d, out of range", key, value));
  }
  return static_cast<int>(value);
}

absl::StatusOr<int> GetIntOr(const GgufFile& file, const std::string& key, int fallback) {
  if (!file.Has(key)) return fallback;
  return GetInt(file, key);
}

absl::Status NotSupported(const std::string& what) { return absl::FailedPreconditionError(what + " is not supported"); }

// Some converters write one head count per layer; equal ones are one number.
absl::StatusOr<int> GetHeads(const GgufFile& file, const std::string& key) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr || value->type != GgufValueType::kArray) return GetInt(file, key);
  BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> heads, file.GetI64Array(key));
  for (int64_t h : heads) {
    if (h != heads[0])
      return NotSupported(absl::StrFormat("%s with different values per layer (%d, %d)", key, heads[0], h));
  }
  if (heads.empty() || heads[0] < 0 || heads[0] > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is empty or out of range"));
  }
  return static_cast<int>(heads[0]);
}

absl::Status ReadHeads(const GgufFile& file, const ConfigKeys& keys, ModelConfig* config) {
  BATON_ASSIGN_OR_RETURN(config->num_heads, GetHeads(file, keys.num_heads));
  config->num_kv_heads = config->num_heads;
  if (file.Has(keys.num_kv_heads)) {
    BATON_ASSIGN_OR_RETURN(config->num_kv_heads, GetHeads(file, keys.num_kv_heads));
  }
  if (config->num_heads < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is %d, must be positive", keys.num_heads, config->num_heads));
  }
  if (file.Has(keys.head_dim)) {
    BATON_ASSIGN_OR_RETURN(config->head_dim, GetInt(file, keys.head_dim));
  } else if (config->hidden_size % config->num_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is missing and %s %d is no multiple of %s %d", keys.head_dim,
                                                      keys.hidden_size, config->hidden_size, keys.num_heads,
                                                      config->num_heads));
  } else {
    config->head_dim = config->hidden_size / config->num_heads;
  }
  for (const char* name : {".attention.value_length", ".rope.dimension_count"}) {
    const std::string key = config->architecture + name;
    BATON_ASSIGN_OR_RETURN(const int size, GetIntOr(file, key, config->head_dim));
    if (size != config->head_dim)
      return NotSupported(absl::StrFormat("%s %d beside head_dim %d", key, size, config->head_dim));
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, const ConfigKeys& keys, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  BATON_ASSIGN_OR_RETURN(rope.theta, file.GetF64Or(keys.rope_theta, 10000.0));
  const std::string prefix = config->architecture + ".rope.";
  BATON_ASSIGN_OR_RETURN(const absl::string_view type, file.GetStringOr(prefix + "scaling.type", ""));
  BATON_ASSIGN_OR_RETURN(const double old_factor, file.GetF64Or(prefix + "scale_linear", 1.0));
  BATON_ASSIGN_OR_RETURN(const double factor, file.GetF64Or(prefix + "scaling.factor", old_factor));
  if (type == "linear" || (type.empty() && factor != 1.0)) {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = factor;
  } else if (type != "" && type != "none") {
    return NotSupported(absl::StrCat(prefix, "scaling.type \"", type.substr(0, 100), "\""));
  }
  const TensorView* factors = file.FindTensor("rope_freqs.weight");
  if (factors == nullptr) return absl::OkStatus();
  if (rope.scaling != RopeScaling::kNone) return NotSupported("rope_freqs.weight beside linear rope scaling");
  if (factors->type != GgmlType::kF32 || factors->num_elements() * 2 != config->head_dim) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor rope_freqs.weight: %s %s, expected F32 [%d]",
                                                      GgmlTypeName(factors->type), ShapeToString(factors->shape),
                                                      config->head_dim / 2));
  }
  rope.scaling = RopeScaling::kFactors;
  rope.frequency_factors.resize(static_cast<size_t>(factors->num_elements()));
  return Dequantize(GgmlType::kF32, factors->span(), factors->num_elements(), rope.frequency_factors.data());
}

absl::Status ReadVocabulary(const GgufFile& file, const ConfigKeys& keys, ModelConfig* config) {
  const GgufValue* tokens = file.Find("tokenizer.ggml.tokens");
  const TensorView* embedding = file.FindTensor(kGgufNames.embedding);
  const int rows =
      embedding != nullptr && embedding->shape.size() == 2 && embedding->shape[0] <= std::numeric_limits<int>::max()
          ? static_cast<int>(embedding->shape[0])
          : 0;
  BATON_ASSIGN_OR_RETURN(config->vocab_size, GetIntOr(file, keys.vocab_size, rows));
  if (tokens != nullptr && (tokens->type != GgufValueType::kArray || tokens->element_type != GgufValueType::kString)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key tokenizer.ggml.tokens: expected array of string, found ", GgufTypeName(*tokens)));
  }
  if (tokens != nullptr && embedding != nullptr && tokens->count != static_cast<uint64_t>(rows)) {
    return absl::InvalidArgumentError(absl::StrFormat("tokenizer.ggml.tokens has %d tokens, tensor %s has shape %s",
                                                      tokens->count, embedding->name, ShapeToString(embedding->shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file) {
  BATON_ASSIGN_OR_RETURN(const absl::string_view name, file.GetString("general.architecture"));
  BATON_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(name, Container::kGguf));
  BATON_ASSIGN_OR_RETURN(const uint64_t splits, file.GetU64Or("split.count", 1));
  if (splits > 1 && splits != file.num_parts()) {
    return NotSupported(absl::StrFormat("one part of a file in %d parts (split.count)", splits));
  }
  ModelConfig config;
  config.architecture = architecture->name;
  config.qkv_bias = architecture->qkv_bias;
  config.qk_norm = architecture->qk_norm;
  config.rope.interleaved = architecture->gguf.interleaved_rope;
  const ConfigKeys keys = GgufKeys(name);
  BATON_ASSIGN_OR_RETURN(const uint64_t experts, file.GetU64Or(absl::StrCat(name, ".expert_count"), 0));
  if (experts > 0) return NotSupported(absl::StrFormat("a mixture of experts (%s.expert_count %d)", name, experts));
  BATON_ASSIGN_OR_RETURN(config.num_layers, GetInt(file, keys.num_layers));
  BATON_ASSIGN_OR_RETURN(config.hidden_size, GetInt(file, keys.hidden_size));
  BATON_ASSIGN_OR_RETURN(config.intermediate_size, GetInt(file, keys.intermediate_size));
  BATON_ASSIGN_OR_RETURN(config.context_length, GetInt(file, keys.context_length));
  BATON_ASSIGN_OR_RETURN(const double eps, file.GetF64(keys.rms_norm_eps));
  config.rms_norm_eps = static_cast<float>(eps);
  BATON_RETURN_IF_ERROR(ReadHeads(file, keys, &config));
  BATON_RETURN_IF_ERROR(ReadRope(file, keys, &config));
  BATON_RETURN_IF_ERROR(ReadVocabulary(file, keys, &config));
  BATON_ASSIGN_OR_RETURN(config.sliding_window, GetIntOr(file, absl::StrCat(name, ".attention.sliding_window"), 0));
  BATON_RETURN_IF_ERROR(Validate(config, keys));
  if (config.sliding_window < 0)
    return absl::InvalidArgumentError(absl::StrCat(name, ".attention.sliding_window is negative"));
  if (config.sliding_window >= config.context_length) config.sliding_window = 0;
  if (config.sliding_window > 0) config.context_length = config.sliding_window;
  config.tied_embeddings = file.FindTensor(kGgufNames.output) == nullptr;
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ConfigFromGguf(const GgufFile& file) {
  absl::StatusOr<ModelConfig> config = ReadConfig(file);
  if (config.ok()) return config;
  // A key that is missing makes the file malformed; NOT_FOUND would say that there is no file.
  absl::Status status =
      absl::IsNotFound(config.status()) ? absl::InvalidArgumentError(config.status().message()) : config.status();
  if (absl::StartsWith(status.message(), file.path())) return status;
  return Annotate(status, file.path());
}

}  // namespace baton
