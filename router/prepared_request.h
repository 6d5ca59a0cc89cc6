// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PREPARED_REQUEST_H_
#define BATON_ROUTER_PREPARED_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/internal/decode.pb.h"
#include "baton/internal/types.pb.h"
#include "baton/v1/generation.pb.h"
#include "common/text/stop_string_matcher.h"
#include "router/cluster_view.h"
#include "router/served_model.h"

namespace baton {

// What the workers can take. A request has to fit one of `contexts`.
struct ModelLimits {
  std::vector<ContextLimit> contexts;  // In order, at least one.
  int vocab_size = 0;                  // Rows of the model: ids are below it.

  // The longest of all.
  int context_length() const { return contexts.back().total; }
  // The shortest that holds a prompt of so many tokens and one more; 0: none.
  int ShortestFor(int64_t prompt_tokens) const;
  // The longest that takes such a prompt; 0: none.
  int LongestFor(int64_t prompt_tokens) const;
};

inline constexpr int kMaxChoices = 64;
inline constexpr int kMaxLogprobs = 20;
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr int kMaxPriority = 1000000;  // And its negative: queues order by the negated value.
// Prompts up to this size are tokenised on the thread that brought them.
inline constexpr size_t kInlinePromptBytes = 2048;

// A request with everything checked and all its text gone.
struct PreparedRequest {
  std::vector<int32_t> tokens;  // At least one.
  internal::SamplingSpec sampling;
  std::optional<internal::AnswerFormat> format;
  StopStringMatcher stops;  // Each choice has a copy.
  int num_choices = 1;
};

// NOT_FOUND for a model that this router does not serve.
absl::Status ModelNotFound(absl::string_view asked, const ServedModel& model);

// A client's own name for a request goes into headers, logs and metrics: 1 to kMaxRequestIdBytes visible ASCII characters.
//   INVALID_ARGUMENT  otherwise; Param() is `param`.
absl::Status CheckRequestId(absl::string_view param, absl::string_view id);

// Checks all that needs neither tokenizer nor workers: model, presence of a prompt, UTF-8, sampling values.
//   INVALID_ARGUMENT  the message has the field, its value and the bound, or why there is no text; Param() is the field.
//   NOT_FOUND         another model.
absl::Status CheckRequest(const v1::GenerateRequest& request, const ServedModel& model);

// Refuses by its size alone a prompt that cannot fit, before anything is rendered or tokenised. For a request that
// CheckRequest passed.
//   INVALID_ARGUMENT  more bytes than the longest context's tokens can stand for, or more token ids than it has.
absl::Status CheckPromptLength(const v1::GenerateRequest& request, const ServedModel& model, const ModelLimits& limits);

// Renders and tokenises the prompt, and completes the sampling values. For a request that CheckRequest passed. Waits for
// the renderer if the prompt is a chat.
//   INVALID_ARGUMENT  template error, empty prompt, token id outside the vocabulary, prompt + max_tokens over the context, a
//                     response format that CompileJsonSchema refuses.
absl::StatusOr<PreparedRequest> PrepareRequest(const v1::GenerateRequest& request, const ServedModel& model,
                                               const ModelLimits& limits);

// The tokens of a text or chat prompt of a request that CheckRequest passed.
//   INVALID_ARGUMENT  template error, or a rendered chat that `limits` (null: none) cannot hold, by its bytes alone.
absl::StatusOr<std::vector<int32_t>> TokenisePrompt(const v1::GenerateRequest& request, const ServedModel& model,
                                                    const ModelLimits* limits);

// Whether PrepareRequest may take long, and so belongs on the preparation pool.
bool IsSlowToPrepare(const v1::GenerateRequest& request);

}  // namespace baton

#endif  // BATON_ROUTER_PREPARED_REQUEST_H_
