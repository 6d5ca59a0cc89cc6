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
// response format: a list of calls, or the arguments of the named one. Beside a response_format the answer is that format's,
// and no call is sought in it.
//   INVALID_ARGUMENT  another choice, one without its tool, or one that is forced beside a response_format; Param() is
//                     "tool_choice".
absl::Status ReadToolChoice(JsonFields& fields, v1::GenerateRequest* request, ToolUse* use);

// What a client is told of the format that its required or named call became: a schema that cannot be used is
// "tools[i].function.parameters", with the tool's name, and the place in it as the client wrote it. Others are unchanged.
absl::Status NameTool(const ToolUse& use, const absl::Status& status);

// Splits what the deltas of a chat's choice say into content and calls. A named call's arguments come as calls of its name, piece by
// piece. One thread.
class ContentReader {
 public:
  explicit ContentReader(const ToolUse& use) : use_(use), calls_(use) {}
  // A delta that finishes the choice brings the rest.
  ToolCallReader::Result Read(const v1::ChoiceDelta& delta);

 private:
  ToolUse use_;
  ToolCallReader calls_;
  bool begun_ = false;
};

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_TOOLS_H_
