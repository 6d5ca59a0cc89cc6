// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAI_MESSAGES_H_
#define BATON_ROUTER_OPENAI_MESSAGES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/generation.pb.h"
#include "router/json_fields.h"

namespace baton {

// Of a chat message: system, developer, user, assistant, tool, function.
bool IsKnownRole(absl::string_view role);
inline constexpr char kKnownRoles[] = "is not one of system, developer, user, assistant, tool, function";

// Reads `messages`, `tools`, `tool_choice`, `add_generation_prompt` and `chat_template_kwargs`. Content may be a string or an
// array of text parts (joined by line ends); an assistant's may be absent, which is the same as empty. Arguments of tool
// calls that are JSON objects in a string become objects, as templates expect.
//   INVALID_ARGUMENT  no messages, unknown role, missing content, a part that is no text; Param() is "messages[i]...".
absl::Status ReadChat(JsonFields& fields, v1::ChatPrompt* chat);

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_MESSAGES_H_
