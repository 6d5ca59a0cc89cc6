// SPDX-License-Identifier: Apache-2.0
#include "router/call_scanner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace baton {

bool CallScanner::Push(absl::string_view text) {
  for (const char c : text) {
    if (place_ == Place::kNoCall) break;
    place_ = Next(c);
  }
  return place_ != Place::kNoCall;
}

CallScanner::Place CallScanner::Next(char c) {
  switch (place_) {
    case Place::kInKey:
      if (!escaped_ && c == '"') {
        const bool member = key_ == "name" || key_ == "arguments" || key_ == "parameters" || key_ == "type";
        escaped_ = false;
        return member || !plain_ ? Place::kColon : Place::kNoCall;
      }
      key_.push_back(c);
      return InString(c, Place::kInKey);
    case Place::kInName:
      if (!escaped_ && c == '"') {
        const bool known = std::ranges::find(*names_, value_) != names_->end();
        return known || !plain_ ? Place::kAfterValue : Place::kNoCall;
      }
      value_.push_back(c);
      if (plain_ && c != '\\' && std::ranges::none_of(*names_, [&](const std::string& name) { return absl::StartsWith(name, value_); })) {
        return Place::kNoCall;
      }
      return InString(c, Place::kInName);
    case Place::kInString:
      return !escaped_ && c == '"' ? Place::kAfterValue : InString(c, Place::kInString);
    case Place::kNested:
      return Nested(c);
    default:
      break;
  }
  if (absl::ascii_isspace(static_cast<unsigned char>(c))) return place_;
  switch (place_) {
    case Place::kBegin:
      if (c == '[' && !std::exchange(list_, true)) return Place::kObject;
      [[fallthrough]];
    case Place::kObject:
      return c == '{' ? Place::kKey : Place::kNoCall;
    case Place::kKey:
      if (c != '"') return Place::kNoCall;
      key_.clear();
      plain_ = true;
      escaped_ = false;
      return Place::kInKey;
    case Place::kColon:
      return c == ':' ? Place::kValue : Place::kNoCall;
    case Place::kValue:
      return Value(c);
    case Place::kAfterValue:
      return c == ',' ? Place::kKey : c == '}' ? (list_ ? Place::kAfterObject : Place::kEnd) : Place::kNoCall;
    case Place::kAfterObject:
      return c == ',' ? Place::kObject : c == ']' ? Place::kEnd : Place::kNoCall;
    default:
      return Place::kNoCall;
  }
}

CallScanner::Place CallScanner::InString(char c, Place after) {
  escaped_ = !escaped_ && c == '\\';
  plain_ = plain_ && !escaped_;
  return after;
}

// Arguments are an object, or its text; the others are strings. A key with escapes may be any of them.
CallScanner::Place CallScanner::Value(char c) {
  const bool arguments = key_ == "arguments" || key_ == "parameters" || !plain_;
  const bool name = key_ == "name";
  escaped_ = false;
  plain_ = true;
  if (c == '{' && arguments) {
    depth_ = 1;
    in_nested_string_ = false;
    return Place::kNested;
  }
  if (c != '"') return Place::kNoCall;
  value_.clear();
  return name ? Place::kInName : Place::kInString;
}

CallScanner::Place CallScanner::Nested(char c) {
  if (in_nested_string_) {
    in_nested_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    return Place::kNested;
  }
  in_nested_string_ = c == '"';
  depth_ += (c == '{' || c == '[') - (c == '}' || c == ']');
  return depth_ > 0 ? Place::kNested : Place::kAfterValue;
}

}  // namespace baton
