// SPDX-License-Identifier: Apache-2.0
#include "common/engine/sampling_params.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

absl::Status InRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // Not so for NaN.
  return absl::InvalidArgumentError(absl::StrFormat("%s is %g; it must be from %g to %g", field, value, low, high));
}

absl::Status IdInVocabulary(const char* field, int32_t id, int vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has token id %d; ids are from 0 to %d", field, id, vocab_size - 1));
}

}  // namespace

absl::Status SamplingParams::Validate(int vocab_size) const {
  if (!std::isfinite(temperature) || temperature < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("temperature is %g; it must be finite and >= 0", temperature));
  }
  if (!(top_p > 0 && top_p <= 1)) {
    return absl::InvalidArgumentError(absl::StrFormat("top_p is %g; it must be > 0 and <= 1", top_p));
  }
  BATON_RETURN_IF_ERROR(InRange("min_p", min_p, 0, 1));
  if (!std::isfinite(repetition_penalty) || repetition_penalty <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("repetition_penalty is %g; it must be finite and > 0", repetition_penalty));
  }
  BATON_RETURN_IF_ERROR(InRange("presence_penalty", presence_penalty, -2, 2));
  BATON_RETURN_IF_ERROR(InRange("frequency_penalty", frequency_penalty, -2, 2));
  for (const auto& [id, bias] : logit_bias) {
    BATON_RETURN_IF_ERROR(IdInVocabulary("logit_bias", id, vocab_size));
    if (!(bias >= -100 && bias <= 100)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("logit_bias of token %d is %g; it must be from -100 to 100", id, bias));
    }
  }
  BATON_RETURN_IF_ERROR(InRange("num_logprobs", num_logprobs, -1, kMaxLogprobs));
  if (max_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("max_tokens is %d; it must be >= 1", max_tokens));
  }
  if (min_tokens < 0 || min_tokens > max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("min_tokens is %d; it must be from 0 to max_tokens, %d", min_tokens, max_tokens));
  }
  for (int32_t id : stop_token_ids) BATON_RETURN_IF_ERROR(IdInVocabulary("stop_token_ids", id, vocab_size));
  return absl::OkStatus();
}

}  // namespace baton
