// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_TOOL_CALL_READER_H_
#define BATON_ROUTER_TOOL_CALL_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/call_scanner.h"

namespace baton {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text.
};

// Which tools a chat's answer may call.
struct ToolUse {
  enum class Mode {
    kNone,      // There are none, or tool_choice is "none".
    kAuto,      // The answer is text, with calls in it where the model writes some.
    kRequired,  // The answer is a JSON list of calls, by its format.
    kNamed,     // The answer is the arguments of one call of `name`, by its format.
  };
  Mode mode = Mode::kNone;
  std::vector<std::string> names;  // In the order of the tools.
  std::string name;
};

// Finds calls in a choice's text as it comes. One thread.
//
// kAuto: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` anywhere (Hermes, Qwen), or an answer that is nothing but
// such an object (Llama: "parameters") or a list of them; what cannot become one any more comes as text at once. Calls of unknown tools, or that are no JSON, stay text; without the
// tags so does an object with any other members than those of a call, for they would be lost.
// kRequired: every object of the list. kNamed: not needed.
class ToolCallReader {
 public:
  explicit ToolCallReader(const ToolUse& use) : use_(use) {}
  // Not by itself: a scanner that has begun looks at the names of the original.
  ToolCallReader(const ToolCallReader& other) : use_(other.use_) {}

  struct Result {
    std::string content;
    std::vector<ToolCall> calls;
  };
  // What `text` made certain.
  Result Push(absl::string_view text);
  // The rest; the answer has ended.
  Result Finish();

 private:
  enum class Part { kStart, kText, kTag, kWhole };

  void PushList(absl::string_view text, Result* result);
  bool Advance(Result* result);
  bool FindTag(Result* result);
  // Appends the calls that `json` is; false when it is something else. `marked`: a tag or the format says that it is a call.
  bool ReadCalls(absl::string_view json, bool marked, Result* result) const;

  const ToolUse use_;
  Part part_ = Part::kStart;
  std::string held_;    // Not certain yet.
  CallScanner whole_{&use_.names};  // Of kWhole.
  size_t scanned_ = 0;              // Of held_, by whole_.
  std::string blanks_;  // Before the tag: content only if it is no call.
  // Of a list: the object that is being read is held_.
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace baton

#endif  // BATON_ROUTER_TOOL_CALL_READER_H_
