// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_MODEL_CONFIG_H_
#define BATON_COMMON_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/format/gguf.h"
#include "nlohmann/json.hpp"

namespace baton {

struct Architecture;

enum class RopeScaling {
  kNone,
  kLinear,   // Every frequency divided by `factor`.
  kLlama3,   // Low frequencies divided by `factor`, high ones kept, those between blended.
  kFactors,  // Frequency i divided by frequency_factors[i] (GGUF's rope_freqs.weight).
};

// Rotary position embedding over the whole head: pair i of a query or key is turned by position * inverse frequency i.
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                   // kLinear, kLlama3
  double low_freq_factor = 1.0;          // kLlama3
  double high_freq_factor = 4.0;         // kLlama3
  int original_context_length = 0;       // kLlama3
  std::vector<float> frequency_factors;  // kFactors: [head_dim / 2]
  bool interleaved =
      false;  // Pair i is (2i, 2i + 1), as llama-family GGUF files store q and k; else (i, i + head_dim / 2).

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Everything about a decoder-only transformer that is not a weight. Plain values; Validate() holds for any that a
// Checkpoint hands out.
struct ModelConfig {
  std::string architecture;  // "llama", "mistral", "qwen2", "qwen3"
  int num_layers = 0;
  int hidden_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // Divides num_heads.
  int head_dim = 0;      // Even. num_heads * head_dim may differ from hidden_size.
  int intermediate_size = 0;
  int vocab_size = 0;
  int context_length = 0;  // Positions that give what the model's authors defined; see sliding_window.
  int sliding_window = 0;  // 0: none. Otherwise context_length has been capped to it: within, attention is full.
  float rms_norm_eps = 0.0f;
  RopeConfig rope;
  bool tied_embeddings = false;  // The output matrix is the embedding.
  bool qkv_bias = false;
  bool qk_norm = false;  // RMSNorm over each head of q and k, before the rotary embedding.

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// What a field is called where the config came from, so that errors name the key a person can look up.
struct ConfigKeys {
  std::string num_layers = "num_layers";
  std::string hidden_size = "hidden_size";
  std::string num_heads = "num_heads";
  std::string num_kv_heads = "num_kv_heads";
  std::string head_dim = "head_dim";
  std::string intermediate_size = "intermediate_size";
  std::string vocab_size = "vocab_size";
  std::string context_length = "context_length";
  std::string rms_norm_eps = "rms_norm_eps";
  std::string rope_theta = "rope_theta";
};

ConfigKeys HuggingFaceKeys();
ConfigKeys GgufKeys(absl::string_view architecture);  // "llama.block_count", ...

// INVALID_ARGUMENT naming the key, its value and the bound: a count that is zero, negative or absurd, heads that do not
// divide, an odd head_dim, a norm epsilon or rope value that is zero, negative or not finite.
absl::Status Validate(const ModelConfig& config, const ConfigKeys& keys = ConfigKeys());

// config.json of a Hugging Face folder, in old field names (rope_theta, rope_scaling, torch_dtype) or new ones
// (rope_parameters, dtype). Where both are given they must agree. Validated.
//   INVALID_ARGUMENT     a missing, malformed or out-of-range field; old and new rope fields that differ.
//   FAILED_PRECONDITION  something real that is not implemented: architecture, rope type, activation, bias,
//   quantisation.
absl::StatusOr<ModelConfig> ConfigFromJson(const nlohmann::json& json);

// Metadata of a GGUF file, with rope_freqs.weight where present. Validated. Codes as above.
absl::StatusOr<ModelConfig> ConfigFromGguf(const GgufFile& file);

// [head_dim / 2] inverse frequencies in radians per position, fastest first, scaling applied.
std::vector<float> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace baton

#endif  // BATON_COMMON_MODEL_MODEL_CONFIG_H_
