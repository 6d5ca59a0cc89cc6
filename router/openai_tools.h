// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAI_TOOLS_H_
#define BATON_ROUTER_OPENAI_TOOLS_H_

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "router/json_fields.h"
#include "router/tool_call_reader.h"

namespace baton {

// Reads `tool_choice` ("none", "auto", "required", {"type": "function", "function": {"name": text}}) and
// `parallel_tool_calls` of a chat whose `tools` have been read and checked. Required and named choices become the request's
// response format: a list of calls, or the arguments of the named one.
//   INVALID_ARGUMENT  another choice, one without its tool, or one that is forced beside a response_format; Param() is
//                     "tool_choice".
absl::Status ReadToolChoice(JsonFields& fields, v1::GenerateRequest* request, ToolUse* use);

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_TOOLS_H_
