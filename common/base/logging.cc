// SPDX-License-Identifier: Apache-2.0
#include "common/base/logging.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/log_record.h"
#include "common/base/mutex.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

std::atomic<int> min_severity{static_cast<int>(LogSeverity::kINFO)};

struct Shared {
  Mutex mutex;
  LogOptions options ABSL_GUARDED_BY(mutex);
};

Shared& GetShared() {
  static Shared* const shared = new Shared;  // Never destroyed: threads may log while the process exits.
  return *shared;
}

const char* Name(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kDEBUG: return "debug";
    case LogSeverity::kINFO: return "info";
    case LogSeverity::kWARNING: return "warning";
    case LogSeverity::kERROR: return "error";
    case LogSeverity::kFATAL: return "fatal";
  }
  return "?";
}

// One line of a log: `text` for people, or `message` and `fields` for programs.
void WriteLine(LogSeverity severity, const char* file, int line_number, const std::string& text, absl::string_view message, const Json& fields) {
  LogOptions options;
  {
    Shared& shared = GetShared();
    MutexLock lock(&shared.mutex);
    options = shared.options;
  }
  const char* base = std::strrchr(file, '/');
  const std::string place = absl::StrCat(base != nullptr ? base + 1 : file, ":", line_number);
  std::string line;
  if (options.format == LogFormat::kJson) {
    Json json;
    json["time"] = absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone());
    json["severity"] = Name(severity);
    json["process"] = options.process;
    json["source"] = place;
    json["message"] = std::string(message);
    json.update(fields);
    line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    line = absl::StrFormat("%s %-7s %s: %s", absl::FormatTime("%H:%M:%E3S", absl::Now(), absl::LocalTimeZone()), Name(severity),
                           options.process, text);
    if (severity >= LogSeverity::kERROR) absl::StrAppend(&line, " [", place, "]");
  }
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// A value as it stands behind `name=`.
std::string Shown(const std::string& value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || (c != 0 && std::strchr("_-+./:,@[]", c) != nullptr);
  });
  return plain ? value : absl::StrCat("\"", absl::CHexEscape(value), "\"");
}

}  // namespace

void SetLogOptions(const LogOptions& options) {
  Shared& shared = GetShared();
  MutexLock lock(&shared.mutex);
  shared.options = options;
  min_severity.store(static_cast<int>(options.min_severity), std::memory_order_relaxed);
}

bool LogEnabled(LogSeverity severity) {
  return static_cast<int>(severity) >= min_severity.load(std::memory_order_relaxed) || severity == LogSeverity::kFATAL;
}

LogRecord& LogRecord::Add(absl::string_view name, absl::string_view value) {
  values_.emplace_back(name, std::string(value));
  return *this;
}

LogRecord& LogRecord::Add(absl::string_view name, int64_t value) {
  values_.emplace_back(name, value);
  return *this;
}

LogRecord& LogRecord::AddMs(absl::string_view name, double value) {
  values_.emplace_back(name, std::round(value * 10) / 10);
  return *this;
}

std::string LogRecord::Text() const {
  std::string text = absl::StrCat(event_, " ", id_);
  for (const auto& [name, value] : values_) {
    absl::StrAppend(&text, " ", name, "=");
    if (const auto* words = std::get_if<std::string>(&value)) absl::StrAppend(&text, Shown(*words));
    if (const auto* whole = std::get_if<int64_t>(&value)) absl::StrAppend(&text, *whole);
    if (const auto* real = std::get_if<double>(&value)) absl::StrAppendFormat(&text, "%.1f", *real);
  }
  return text;
}

void LogRecord::Write(const char* file, int line) const {
  if (!LogEnabled(LogSeverity::kINFO)) return;
  Json fields{{"id", id_}};
  for (const auto& [name, value] : values_) {
    std::visit([&fields, &key = name](const auto& held) { fields[key] = held; }, value);
  }
  WriteLine(LogSeverity::kINFO, file, line, Text(), event_, fields);
}

namespace logging_internal {

LogMessage::LogMessage(LogSeverity severity, const char* file, int line) : severity_(severity), file_(file), line_(line) {}

LogMessage::~LogMessage() {
  WriteLine(severity_, file_, line_, stream_.str(), stream_.str(), Json::object());
  if (severity_ == LogSeverity::kFATAL) std::abort();
}

}  // namespace logging_internal
}  // namespace baton
