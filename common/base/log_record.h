// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_LOG_RECORD_H_
#define BATON_COMMON_BASE_LOG_RECORD_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// A line of the log with named values, for people and for programs: `request r-1 reason=stop total_ms=12.5`, or as JSON
// {"time": ..., "severity": "info", ..., "message": "request", "id": "r-1", "reason": "stop", "total_ms": 12.5}.
class LogRecord {
 public:
  // `event`: what the line is about, a word; `id`: which one of them.
  LogRecord(absl::string_view event, absl::string_view id) : event_(event), id_(id) {}

  // Names are words of their own, other than those that every line has. Text is escaped, and quoted where it is no plain word.
  LogRecord& Add(absl::string_view name, absl::string_view value);
  LogRecord& Add(absl::string_view name, int64_t value);
  LogRecord& AddMs(absl::string_view name, double value);  // A duration, to a tenth.

  std::string Text() const;
  // Writes it at INFO, where that is logged.
  void Write(const char* file, int line) const;

 private:
  using Value = std::variant<std::string, int64_t, double>;
  const std::string event_, id_;
  std::vector<std::pair<std::string, Value>> values_;
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_LOG_RECORD_H_
