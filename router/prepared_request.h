// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PREPARED_REQUEST_H_
#define BATON_ROUTER_PREPARED_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/internal/types.pb.h"
#include "baton/v1/generation.pb.h"
#include "common/text/stop_string_matcher.h"
#include "router/served_model.h"

namespace baton {

// What the workers can take; from the cluster's representative.
struct ModelLimits {
  int context_length = 0;  // Prompt and generated tokens together.
  int vocab_size = 0;      // Rows of the model: ids are below it.
};

inline constexpr int kMaxChoices = 64;
inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxPriority = 1000000;  // And its negative: queues order by the negated value.
// Prompts up to this size are tokenised on the thread that brought them.
inline constexpr size_t kInlinePromptBytes = 2048;

// A request with everything checked and all its text gone.
struct PreparedRequest {
  std::vector<int32_t> tokens;  // At least one.
  internal::SamplingSpec sampling;
  StopStringMatcher stops;  // Each choice has a copy.
  int num_choices = 1;
};

// Checks all that needs neither tokenizer nor workers: model, presence of a prompt, UTF-8, sampling values.
//   INVALID_ARGUMENT  the message has the field, its value and the bound; Param() is the field.
//   NOT_FOUND         another model.
absl::Status CheckRequest(const v1::GenerateRequest& request, const ServedModel& model);

// Renders and tokenises the prompt, and completes the sampling values. For a request that CheckRequest passed. Waits for
// the renderer if the prompt is a chat.
//   INVALID_ARGUMENT  template error, empty prompt, token id outside the vocabulary, prompt + max_tokens over the context.
absl::StatusOr<PreparedRequest> PrepareRequest(const v1::GenerateRequest& request, const ServedModel& model,
                                               const ModelLimits& limits);

// The tokens of a text or chat prompt of a request that CheckRequest passed; no limits.
absl::StatusOr<std::vector<int32_t>> TokenisePrompt(const v1::GenerateRequest& request, const ServedModel& model);

// Whether PrepareRequest may take long, and so belongs on the task pool.
bool IsSlowToPrepare(const v1::GenerateRequest& request);

}  // namespace baton

#endif  // BATON_ROUTER_PREPARED_REQUEST_H_
