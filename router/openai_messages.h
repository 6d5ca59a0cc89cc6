// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAI_MESSAGES_H_
#define BATON_ROUTER_OPENAI_MESSAGES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/generation.pb.h"
#include "router/json_fields.h"

namespace baton {

// Of a chat message: system, developer, user, assistant, tool, function.
bool IsKnownRole(absl::string_view role);
inline constexpr char kKnownRoles[] = "is not one of system, developer, user, assistant, tool, function";

// Brings what a message has beside role and content into the form that templates expect, and checks it: nulls and empty
// `tool_calls` are dropped, arguments that are a JSON object in a string become that object. `param` is the message's name.
//   INVALID_ARGUMENT  name, tool_call_id or refusal that is no text; tool_calls that are no list of {"id": text, "type": text,
//                     "function": {"name": text, "arguments": text or object}}; Param() is "messages[i].tool_calls[j]...".
absl::Status NormaliseExtra(const std::string& param, Json* extra);

// `tools` of a chat: a list of {"type": text, "function": {"name": text, "description": text, "parameters": object}}, or of
// such functions alone.
//   INVALID_ARGUMENT  another shape; Param() is "tools[i]...".
absl::Status CheckTools(const Json& tools);

// Reads `messages`, `tools`, `tool_choice`, `add_generation_prompt` and `chat_template_kwargs`. Content may be a string or an
// array of text parts (joined by line ends); an assistant's may be absent, which is the same as empty. The rest is as
// NormaliseExtra and CheckTools have it.
//   INVALID_ARGUMENT  no messages, unknown role, missing content, a part that is no text; Param() is "messages[i]...".
absl::Status ReadChat(JsonFields& fields, v1::ChatPrompt* chat);

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_MESSAGES_H_
