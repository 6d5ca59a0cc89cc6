// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/model/architecture.h"
#include "common/model/model_config.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// null counts as absent, as in the files' own loader.
const Json* Field(const Json& object, absl::string_view key) {
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

absl::Status Malformed(absl::string_view key, const Json& value, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(key, " is ", DumpJson(value).substr(0, 200), ", expected ", wanted));
}

absl::Status NotSupported(const std::string& what) { return absl::FailedPreconditionError(what + " is not supported"); }

absl::StatusOr<int> GetIntOr(const Json& object, absl::string_view key, std::optional<int> fallback) {
  const Json* value = Field(object, key);
  if (value == nullptr) {
    if (fallback.has_value()) return *fallback;
    return absl::InvalidArgumentError(absl::StrCat(key, " is missing"));
  }
  // An unsigned number over 2^63 - 1 would wrap in get<int64_t>.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= std::numeric_limits<int>::max()) &&
                    value->get<int64_t>() >= std::numeric_limits<int>::min();
  if (!fits) return Malformed(key, *value, "an integer below 2^31");
  return static_cast<int>(value->get<int64_t>());
}

absl::StatusOr<double> GetDoubleOr(const Json& object, absl::string_view key, std::optional<double> fallback) {
  const Json* value = Field(object, key);
  if (value == nullptr) {
    if (fallback.has_value()) return *fallback;
    return absl::InvalidArgumentError(absl::StrCat(key, " is missing"));
  }
  if (!value->is_number()) return Malformed(key, *value, "a number");
  return value->get<double>();
}

absl::StatusOr<bool> GetBoolOr(const Json& object, absl::string_view key, bool fallback) {
  const Json* value = Field(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Malformed(key, *value, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> GetStringOr(const Json& object, absl::string_view key, absl::string_view fallback) {
  const Json* value = Field(object, key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return Malformed(key, *value, "a string");
  return value->get<std::string>();
}

// The scaling of rope_scaling or rope_parameters; theta is left alone.
absl::Status ReadScaling(const Json& object, absl::string_view where, RopeConfig* rope) {
  // "type" is the oldest spelling of "rope_type"; files that have both may disagree only in name.
  BATON_ASSIGN_OR_RETURN(const std::string old_type, GetStringOr(object, "type", "default"));
  BATON_ASSIGN_OR_RETURN(const std::string type, GetStringOr(object, "rope_type", old_type));
  BATON_ASSIGN_OR_RETURN(const double partial, GetDoubleOr(object, "partial_rotary_factor", 1.0));
  if (partial != 1.0) return NotSupported(absl::StrFormat("%s: partial_rotary_factor %g", where, partial));
  for (const auto& [key, value] : object.items()) {
    if (value.is_object())
      return NotSupported(absl::StrCat(where, ": settings per layer type (", key.substr(0, 100), ")"));
  }
  if (type == "default") return absl::OkStatus();
  if (type != "linear" && type != "llama3") {
    return absl::FailedPreconditionError(absl::StrCat(where, ": rope type \"", type.substr(0, 100),
                                                      "\" is not supported; supported: default, linear, llama3"));
  }
  BATON_ASSIGN_OR_RETURN(rope->factor, GetDoubleOr(object, "factor", std::nullopt));
  rope->scaling = RopeScaling::kLinear;
  if (type == "linear") return absl::OkStatus();
  rope->scaling = RopeScaling::kLlama3;
  BATON_ASSIGN_OR_RETURN(rope->low_freq_factor, GetDoubleOr(object, "low_freq_factor", std::nullopt));
  BATON_ASSIGN_OR_RETURN(rope->high_freq_factor, GetDoubleOr(object, "high_freq_factor", std::nullopt));
  BATON_ASSIGN_OR_RETURN(rope->original_context_length,
                         GetIntOr(object, "original_max_position_embeddings", std::nullopt));
  return absl::OkStatus();
}

// rope_theta + rope_scaling (old) and rope_parameters (new). What is given twice must be given alike.
absl::StatusOr<RopeConfig> ReadRope(const Json& json) {
  const Json* parameters = Field(json, "rope_parameters");
  const Json* scaling = Field(json, "rope_scaling");
  if (parameters != nullptr && !parameters->is_object()) return Malformed("rope_parameters", *parameters, "an object");
  if (scaling != nullptr && !scaling->is_object()) return Malformed("rope_scaling", *scaling, "an object");
  BATON_ASSIGN_OR_RETURN(const double partial, GetDoubleOr(json, "partial_rotary_factor", 1.0));
  if (partial != 1.0) return NotSupported(absl::StrFormat("partial_rotary_factor %g", partial));
  RopeConfig old_form, new_form;
  if (scaling != nullptr) BATON_RETURN_IF_ERROR(ReadScaling(*scaling, "rope_scaling", &old_form));
  if (parameters != nullptr) BATON_RETURN_IF_ERROR(ReadScaling(*parameters, "rope_parameters", &new_form));
  const bool old_theta = Field(json, "rope_theta") != nullptr;
  const bool new_theta = parameters != nullptr && Field(*parameters, "rope_theta") != nullptr;
  if (old_theta) {
    BATON_ASSIGN_OR_RETURN(old_form.theta, GetDoubleOr(json, "rope_theta", std::nullopt));
  }
  if (new_theta) {
    BATON_ASSIGN_OR_RETURN(new_form.theta, GetDoubleOr(*parameters, "rope_theta", std::nullopt));
  }
  if (old_theta && new_theta && old_form.theta != new_form.theta) {
    return absl::InvalidArgumentError(absl::StrFormat("rope_theta is %g, rope_parameters.rope_theta is %g: they differ",
                                                      old_form.theta, new_form.theta));
  }
  const double theta = new_theta ? new_form.theta : old_form.theta;
  old_form.theta = new_form.theta = theta;
  if (scaling != nullptr && parameters != nullptr && !(old_form == new_form)) {
    return absl::InvalidArgumentError("rope_scaling and rope_parameters are both given and differ");
  }
  return parameters != nullptr ? new_form : old_form;
}

absl::StatusOr<const Architecture*> ReadArchitecture(const Json& json) {
  BATON_ASSIGN_OR_RETURN(const std::string type, GetStringOr(json, "model_type", ""));
  if (type.empty()) return absl::InvalidArgumentError("model_type is missing");
  return FindArchitecture(type, Container::kHuggingFace);
}

// Fields that would change the computation, were they other than here.
absl::Status RefuseUnsupported(const Json& json) {
  BATON_ASSIGN_OR_RETURN(std::string activation, GetStringOr(json, "hidden_act", "silu"));
  if (absl::string_view(activation) != "silu") {  // A view: comparing the string draws a false warning from g++ 12.
    return NotSupported(absl::StrCat("hidden_act \"", activation.substr(0, 100), "\""));
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    BATON_ASSIGN_OR_RETURN(const bool bias, GetBoolOr(json, key, false));
    if (bias) return NotSupported(absl::StrCat(key, " true"));
  }
  if (Field(json, "quantization_config") != nullptr) return NotSupported("quantization_config");
  const Json* layer_types = Field(json, "layer_types");
  if (layer_types == nullptr) return absl::OkStatus();
  if (!layer_types->is_array()) return Malformed("layer_types", *layer_types, "an array");
  for (const Json& type : *layer_types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return NotSupported(absl::StrCat("layer type ", DumpJson(type).substr(0, 100)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ReadSlidingWindow(const Json& json, const Architecture& architecture) {
  BATON_ASSIGN_OR_RETURN(const bool on,
                         GetBoolOr(json, "use_sliding_window", !architecture.sliding_window_needs_switch));
  BATON_ASSIGN_OR_RETURN(const int window, GetIntOr(json, "sliding_window", 0));
  if (window < 0) return absl::InvalidArgumentError(absl::StrFormat("sliding_window is %d, must be positive", window));
  return on ? window : 0;
}

absl::Status ReadHeads(const Json& json, ModelConfig* config) {
  BATON_ASSIGN_OR_RETURN(config->num_heads, GetIntOr(json, "num_attention_heads", std::nullopt));
  BATON_ASSIGN_OR_RETURN(config->num_kv_heads, GetIntOr(json, "num_key_value_heads", config->num_heads));
  if (config->num_heads < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_attention_heads is %d, must be positive", config->num_heads));
  }
  if (Field(json, "head_dim") == nullptr && config->hidden_size % config->num_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("head_dim is missing and hidden_size %d is no multiple of "
                        "num_attention_heads %d",
                        config->hidden_size, config->num_heads));
  }
  BATON_ASSIGN_OR_RETURN(config->head_dim, GetIntOr(json, "head_dim", config->hidden_size / config->num_heads));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ConfigFromJson(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  BATON_ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(json));
  BATON_RETURN_IF_ERROR(RefuseUnsupported(json));
  ModelConfig config;
  config.architecture = architecture->name;
  config.qkv_bias = architecture->qkv_bias;
  config.qk_norm = architecture->qk_norm;
  BATON_ASSIGN_OR_RETURN(config.num_layers, GetIntOr(json, "num_hidden_layers", std::nullopt));
  BATON_ASSIGN_OR_RETURN(config.hidden_size, GetIntOr(json, "hidden_size", std::nullopt));
  BATON_ASSIGN_OR_RETURN(config.intermediate_size, GetIntOr(json, "intermediate_size", std::nullopt));
  BATON_ASSIGN_OR_RETURN(config.vocab_size, GetIntOr(json, "vocab_size", std::nullopt));
  BATON_ASSIGN_OR_RETURN(config.context_length, GetIntOr(json, "max_position_embeddings", std::nullopt));
  BATON_ASSIGN_OR_RETURN(const double eps, GetDoubleOr(json, "rms_norm_eps", 1e-6));
  config.rms_norm_eps = static_cast<float>(eps);
  BATON_RETURN_IF_ERROR(ReadHeads(json, &config));
  BATON_ASSIGN_OR_RETURN(config.rope, ReadRope(json));
  config.rope.interleaved = architecture->hugging_face.interleaved_rope;
  BATON_ASSIGN_OR_RETURN(config.tied_embeddings, GetBoolOr(json, "tie_word_embeddings", false));
  BATON_ASSIGN_OR_RETURN(config.sliding_window, ReadSlidingWindow(json, *architecture));
  BATON_RETURN_IF_ERROR(Validate(config, HuggingFaceKeys()));
  if (config.sliding_window >= config.context_length) config.sliding_window = 0;
  if (config.sliding_window > 0) config.context_length = config.sliding_window;
  return config;
}

}  // namespace baton
