// SPDX-License-Identifier: Apache-2.0
#include "common/base/logging.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

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

namespace logging_internal {

LogMessage::LogMessage(LogSeverity severity, const char* file, int line) : severity_(severity), file_(file), line_(line) {}

LogMessage::~LogMessage() {
  LogOptions options;
  {
    Shared& shared = GetShared();
    MutexLock lock(&shared.mutex);
    options = shared.options;
  }
  const char* base = std::strrchr(file_, '/');
  const std::string place = absl::StrCat(base != nullptr ? base + 1 : file_, ":", line_);
  std::string text;
  if (options.format == LogFormat::kJson) {
    nlohmann::ordered_json json;
    json["time"] = absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone());
    json["severity"] = Name(severity_);
    json["process"] = options.process;
    json["source"] = place;
    json["message"] = stream_.str();
    text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    text += '\n';
  } else {
    text = absl::StrFormat("%s %-7s %s: %s", absl::FormatTime("%H:%M:%E3S", absl::Now(), absl::LocalTimeZone()), Name(severity_),
                           options.process, stream_.str());
    if (severity_ >= LogSeverity::kERROR) absl::StrAppend(&text, " [", place, "]");
    text += '\n';
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  if (severity_ == LogSeverity::kFATAL) std::abort();
}

}  // namespace logging_internal
}  // namespace baton
