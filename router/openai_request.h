// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAI_REQUEST_H_
#define BATON_ROUTER_OPENAI_REQUEST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/generation.pb.h"
#include "router/json_fields.h"
#include "router/tool_call_reader.h"

namespace baton {

inline constexpr int kMaxBatchPrompts = 256;

// A body of /v1/completions, /v1/chat/completions or /v1/responses, in Baton's own terms.
struct OpenAiRequest {
  bool chat = false;
  std::vector<v1::GenerateRequest> requests;  // One per prompt of the batch; a chat is one.
  std::vector<std::string> echo;              // Text to put in front, per prompt; empty unless `echo`, and for token ids.
  bool echo_token_ids = false;                // What stands in front of prompts of token ids is their text.
  int num_choices = 1;                        // Per prompt.
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  ToolUse tools;               // Of a chat.
  // Of /v1/responses: what its answer repeats of the request, and what each message was called there; else null, and empty.
  Json responses;
  std::vector<std::string> message_names;
  int num_unknown_fields = 0;  // Ignored.
};

// A null field is an absent one; unknown fields are counted and ignored.
//   INVALID_ARGUMENT  malformed JSON, a field of the wrong type or value, or one asking for what is not built
//                     (best_of, suffix); Param() is the field.
absl::StatusOr<OpenAiRequest> ParseOpenAiRequest(absl::string_view body, bool chat);
// The same, parsed already.
absl::StatusOr<OpenAiRequest> ReadOpenAiRequest(const Json& body, bool chat);

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_REQUEST_H_
