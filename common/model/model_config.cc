// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_config.h"

#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int kMaxLayers = 1024;
constexpr int kMaxHidden = 1 << 20;
constexpr int kMaxHeads = 4096;
constexpr int kMaxHeadDim = 256;  // What the backends' attention provides for.
constexpr int kMaxIntermediate = 1 << 22;
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxContext = 1 << 26;

absl::Status CheckRange(const std::string& key, int value, int max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is %d, not in [1, %d]", key, value, max));
}

absl::Status CheckPositive(const std::string& key, double value, double max) {
  if (std::isfinite(value) && value > 0 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is %g, not in (0, %g]", key, value, max));
}

absl::Status ValidateRope(const RopeConfig& rope, int head_dim, const ConfigKeys& keys) {
  BATON_RETURN_IF_ERROR(CheckPositive(keys.rope_theta, rope.theta, 1e12));
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kLlama3) {
    BATON_RETURN_IF_ERROR(CheckPositive("rope scaling factor", rope.factor, 1e6));
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    BATON_RETURN_IF_ERROR(CheckPositive("low_freq_factor", rope.low_freq_factor, 1e6));
    BATON_RETURN_IF_ERROR(CheckPositive("high_freq_factor", rope.high_freq_factor, 1e6));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return absl::InvalidArgumentError(absl::StrFormat("high_freq_factor %g is not above low_freq_factor %g",
                                                        rope.high_freq_factor, rope.low_freq_factor));
    }
    BATON_RETURN_IF_ERROR(CheckRange("original_max_position_embeddings", rope.original_context_length, kMaxContext));
  }
  if (rope.scaling == RopeScaling::kFactors) {
    if (rope.frequency_factors.size() * 2 != static_cast<size_t>(head_dim)) {
      return absl::InvalidArgumentError(absl::StrFormat("%d rope frequency factors, head_dim %d needs %d",
                                                        rope.frequency_factors.size(), head_dim, head_dim / 2));
    }
    for (float factor : rope.frequency_factors) {
      BATON_RETURN_IF_ERROR(CheckPositive("rope frequency factor", factor, 1e6));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ModelConfig& config, const ConfigKeys& keys) {
  BATON_RETURN_IF_ERROR(CheckRange(keys.num_layers, config.num_layers, kMaxLayers));
  BATON_RETURN_IF_ERROR(CheckRange(keys.hidden_size, config.hidden_size, kMaxHidden));
  BATON_RETURN_IF_ERROR(CheckRange(keys.num_heads, config.num_heads, kMaxHeads));
  BATON_RETURN_IF_ERROR(CheckRange(keys.num_kv_heads, config.num_kv_heads, kMaxHeads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s %d is no multiple of %s %d", keys.num_heads, config.num_heads,
                                                      keys.num_kv_heads, config.num_kv_heads));
  }
  BATON_RETURN_IF_ERROR(CheckRange(keys.head_dim, config.head_dim, kMaxHeadDim));
  if (config.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is %d, must be even for the rotary embedding", keys.head_dim, config.head_dim));
  }
  BATON_RETURN_IF_ERROR(CheckRange(keys.intermediate_size, config.intermediate_size, kMaxIntermediate));
  BATON_RETURN_IF_ERROR(CheckRange(keys.vocab_size, config.vocab_size, kMaxVocab));
  BATON_RETURN_IF_ERROR(CheckRange(keys.context_length, config.context_length, kMaxContext));
  BATON_RETURN_IF_ERROR(CheckPositive(keys.rms_norm_eps, config.rms_norm_eps, 1.0));
  return ValidateRope(config.rope, config.head_dim, keys);
}

std::vector<float> RopeInverseFrequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  std::vector<float> result(static_cast<size_t>(config.head_dim / 2));
  for (size_t i = 0; i < result.size(); ++i) {
    const double base = std::pow(rope.theta, -2.0 * static_cast<double>(i) / config.head_dim);
    double scaled = base;
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        scaled = base / rope.factor;
        break;
      case RopeScaling::kLlama3: {
        // Llama 3.1's rule, by how often the pair turns within the original context: more than high_freq_factor times,
        // kept; less than low_freq_factor times, divided; linear in the number of turns between.
        const double turns = rope.original_context_length * base / (2.0 * std::numbers::pi);
        double keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        keep = std::fmin(std::fmax(keep, 0.0), 1.0);
        scaled = keep * base + (1.0 - keep) * base / rope.factor;
        break;
      }
      case RopeScaling::kFactors:
        scaled = base / rope.frequency_factors[i];
        break;
    }
    result[i] = static_cast<float>(scaled);
  }
  return result;
}

ConfigKeys HuggingFaceKeys() {
  return {.num_layers = "num_hidden_layers",
          .hidden_size = "hidden_size",
          .num_heads = "num_attention_heads",
          .num_kv_heads = "num_key_value_heads",
          .head_dim = "head_dim",
          .intermediate_size = "intermediate_size",
          .vocab_size = "vocab_size",
          .context_length = "max_position_embeddings",
          .rms_norm_eps = "rms_norm_eps",
          .rope_theta = "rope_theta"};
}

ConfigKeys GgufKeys(absl::string_view architecture) {
  const auto key = [&](absl::string_view name) { return absl::StrCat(architecture, ".", name); };
  return {.num_layers = key("block_count"),
          .hidden_size = key("embedding_length"),
          .num_heads = key("attention.head_count"),
          .num_kv_heads = key("attention.head_count_kv"),
          .head_dim = key("attention.key_length"),
          .intermediate_size = key("feed_forward_length"),
          .vocab_size = key("vocab_size"),
          .context_length = key("context_length"),
          .rms_norm_eps = key("attention.layer_norm_rms_epsilon"),
          .rope_theta = key("rope.freq_base")};
}

}  // namespace baton
