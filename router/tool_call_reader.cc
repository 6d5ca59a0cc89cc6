// SPDX-License-Identifier: Apache-2.0
#include "router/tool_call_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

bool IsObjectText(const std::string& text) {
  const absl::StatusOr<Json> parsed = ParseOrderedJson(text);
  return parsed.ok() && parsed->is_object();
}

// Unmarked, it has to be a call and nothing else: the members that a call has no room for are an answer's.
bool ReadCall(const Json& json, const std::vector<std::string>& names, bool marked, ToolCall* call) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return false;
  call->name = json["name"].get<std::string>();
  if (std::ranges::find(names, call->name) == names.end()) return false;
  const char* const member = json.contains("arguments") ? "arguments" : "parameters";
  if (!marked) {
    const bool typed = json.contains("type") && json["type"] == Json("function");
    if (!json.contains(member) || json.size() != (typed ? 3u : 2u)) return false;
  }
  if (!json.contains(member)) {
    call->arguments = "{}";
    return true;
  }
  const Json& arguments = json[member];
  if (!arguments.is_object() && !(arguments.is_string() && IsObjectText(arguments.get<std::string>()))) return false;
  call->arguments = arguments.is_string() ? arguments.get<std::string>() : DumpJson(arguments);
  return true;
}

}  // namespace

bool ToolCallReader::ReadCalls(absl::string_view json, bool marked, Result* result) const {
  const absl::StatusOr<Json> parsed = ParseOrderedJson(absl::StripAsciiWhitespace(json));
  if (!parsed.ok()) return false;
  const Json list = parsed->is_array() ? *parsed : Json::array({*parsed});
  std::vector<ToolCall> calls(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (!ReadCall(list[i], use_.names, marked, &calls[i])) return false;
  }
  if (calls.empty()) return false;
  std::ranges::move(calls, std::back_inserter(result->calls));
  return true;
}

ToolCallReader::Result ToolCallReader::Push(absl::string_view text) {
  Result result;
  if (use_.mode == ToolUse::Mode::kRequired) {
    PushList(text, &result);
    return result;
  }
  absl::StrAppend(&held_, text);
  while (Advance(&result)) {
  }
  return result;
}

void ToolCallReader::PushList(absl::string_view text, Result* result) {
  for (const char c : text) {
    if (depth_ == 0 && c != '{') continue;  // Brackets, commas and blanks of the list.
    held_.push_back(c);
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    in_string_ = c == '"';
    depth_ += (c == '{') - (c == '}');
    if (depth_ > 0) continue;
    if (!ReadCalls(held_, /*marked=*/true, result)) result->content += held_;
    held_.clear();
  }
}

// True when there may be more to do.
bool ToolCallReader::Advance(Result* result) {
  switch (part_) {
    case Part::kStart: {
      const absl::string_view text = absl::StripLeadingAsciiWhitespace(held_);
      if (text.empty()) return false;
      part_ = text[0] == '{' || text[0] == '[' ? Part::kWhole : Part::kText;
      return true;
    }
    case Part::kText:
      return FindTag(result);
    case Part::kTag: {
      const size_t end = held_.find(kClose.data(), 0, kClose.size());
      if (end == std::string::npos) return false;
      if (!ReadCalls(absl::string_view(held_).substr(0, end), /*marked=*/true, result)) {
        absl::StrAppend(&result->content, blanks_, kOpen, absl::string_view(held_).substr(0, end + kClose.size()));
      }
      held_.erase(0, end + kClose.size());
      part_ = Part::kText;
      return true;
    }
    case Part::kWhole:
      if (whole_.Push(absl::string_view(held_).substr(std::exchange(scanned_, held_.size())))) return false;
      part_ = Part::kText;
      return true;
  }
  return false;
}

bool ToolCallReader::FindTag(Result* result) {
  const size_t tag = held_.find(kOpen.data(), 0, kOpen.size());
  if (tag != std::string::npos) {
    const absl::string_view before = absl::StripTrailingAsciiWhitespace(absl::string_view(held_).substr(0, tag));
    absl::StrAppend(&result->content, before);
    blanks_ = held_.substr(before.size(), tag - before.size());
    held_.erase(0, tag + kOpen.size());
    part_ = Part::kTag;
    return true;
  }
  // What may still become a tag stays, and the blanks before it, which are no content beside calls.
  size_t keep = std::min(held_.size(), kOpen.size() - 1);
  while (keep > 0 && !absl::EndsWith(held_, kOpen.substr(0, keep))) --keep;
  size_t release = held_.size() - keep;
  while (release > 0 && absl::ascii_isspace(held_[release - 1])) --release;
  result->content += held_.substr(0, release);
  held_.erase(0, release);
  return false;
}

ToolCallReader::Result ToolCallReader::Finish() {
  Result result;
  // A model may end its answer where the closing tag should be.
  const bool may_be_call = part_ == Part::kTag || part_ == Part::kWhole;
  if (use_.mode == ToolUse::Mode::kRequired || !may_be_call || !ReadCalls(held_, part_ == Part::kTag, &result)) {
    if (part_ == Part::kTag) absl::StrAppend(&result.content, blanks_, kOpen);
    result.content += held_;
  }
  held_.clear();
  return result;
}

}  // namespace baton
