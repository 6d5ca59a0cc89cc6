// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_SAMPLING_PARAMS_H_
#define BATON_COMMON_ENGINE_SAMPLING_PARAMS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace baton {

class Grammar;

// Below this temperature sampling is greedy: 1e-4 and 1e-30 mean 0, and no quotient of logits can overflow.
inline constexpr double kGreedyTemperature = 1e-3;
inline constexpr int kMaxLogprobs = 20;

// How a sequence's tokens are chosen and when it ends. All a decode worker needs; text-level stop strings are the router's.
// The order of application is in common/engine/README.md.
struct SamplingParams {
  double temperature = 1.0;         // >= 0; below kGreedyTemperature is greedy.
  int top_k = 0;                    // <= 0 or >= vocab: off.
  double top_p = 1.0;               // (0, 1]; 1: off.
  double min_p = 0.0;               // [0, 1]; 0: off.
  uint64_t seed = 0;                // Always set: the router draws one when the client gives none.
  double repetition_penalty = 1.0;  // > 0; over prompt and generated tokens.
  double presence_penalty = 0.0;    // [-2, 2]; over generated tokens.
  double frequency_penalty = 0.0;   // [-2, 2]; over generated tokens.
  std::vector<std::pair<int32_t, double>> logit_bias;  // Added to the logits; [-100, 100].
  int num_logprobs = -1;            // -1: none; 0: the sampled token's; k <= kMaxLogprobs: and the k best.
  int max_tokens = 16;              // Tokens to generate in all, counting those emitted before a recovery. >= 1.
  int min_tokens = 0;               // End-of-generation and stop tokens are masked before. [0, max_tokens].
  bool ignore_eos = false;          // The router then leaves the model's end-of-generation ids out of stop_token_ids.
  std::vector<int32_t> stop_token_ids;  // End with reason "stop"; the model's own end-of-generation ids are added by the router.
  // What the answer may be; null: anything. Stop tokens then end it only where it may end, whatever min_tokens says, and it
  // ends by itself where nothing can follow.
  std::shared_ptr<Grammar> grammar;

  // INVALID_ARGUMENT names the field, its value and the bound; NaN and infinities are refused everywhere.
  absl::Status Validate(int vocab_size) const;

  bool greedy() const { return temperature < kGreedyTemperature || top_k == 1 || min_p >= 1.0; }
  bool has_penalties() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_SAMPLING_PARAMS_H_
