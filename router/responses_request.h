// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_RESPONSES_REQUEST_H_
#define BATON_ROUTER_RESPONSES_REQUEST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/openai_request.h"

namespace baton {

// A body of /v1/responses, read as the chat that it says: `instructions` and `input` are its messages, `text.format` its response
// format. What only a server that keeps answers can do is refused. All other fields are those of a chat.
//   INVALID_ARGUMENT  as ParseOpenAiRequest, with the field's name here ("input[2].content"); and previous_response_id, conversation,
//                     prompt, background, truncation "auto", n over 1, tools and items that are no functions.
absl::StatusOr<OpenAiRequest> ParseResponsesRequest(absl::string_view body);

// What is wrong with that chat, in the names of what it was made of.
absl::Status InNamesOfResponses(const absl::Status& status, const std::vector<std::string>& message_names);

}  // namespace baton

#endif  // BATON_ROUTER_RESPONSES_REQUEST_H_
