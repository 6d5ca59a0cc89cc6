// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_LOGGING_H_
#define BATON_COMMON_BASE_LOGGING_H_

#include <sstream>
#include <string>

#include "absl/strings/string_view.h"

// BATON_LOG(INFO) << "worker " << id << " registered". Severities: DEBUG, INFO, WARNING, ERROR, FATAL (aborts). One line
// per statement on standard error, written by one write(2). Request text is never logged.
//
// BATON_CHECK(cond) << "why" aborts on a bug. Whatever a peer, user, file, device or clock can cause is a Status instead.

namespace baton {

enum class LogSeverity { kDEBUG = 0, kINFO = 1, kWARNING = 2, kERROR = 3, kFATAL = 4 };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogSeverity min_severity = LogSeverity::kINFO;
  LogFormat format = LogFormat::kText;
  std::string process = "baton";  // Shown on each line: "router", "prefill p-1", ...
};

// Applies to all threads; call once at the start of main.
void SetLogOptions(const LogOptions& options);
bool LogEnabled(LogSeverity severity);

namespace logging_internal {

class LogMessage {
 public:
  LogMessage(LogSeverity severity, const char* file, int line);
  ~LogMessage();
  std::ostream& stream() { return stream_; }

 private:
  const LogSeverity severity_;
  const char* const file_;
  const int line_;
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace logging_internal
}  // namespace baton

#define BATON_LOG(severity)                                                 \
  !::baton::LogEnabled(::baton::LogSeverity::k##severity)                   \
      ? (void)0                                                             \
      : ::baton::logging_internal::Voidify() &                              \
            ::baton::logging_internal::LogMessage(::baton::LogSeverity::k##severity, __FILE__, __LINE__).stream()

#define BATON_CHECK(cond)                                                                                          \
  (cond) ? (void)0                                                                                                 \
         : ::baton::logging_internal::Voidify() &                                                                  \
               ::baton::logging_internal::LogMessage(::baton::LogSeverity::kFATAL, __FILE__, __LINE__).stream()    \
                   << "Check failed: " #cond " "

#define BATON_CHECK_EQ(a, b) BATON_CHECK((a) == (b)) << "(" << (a) << " vs " << (b) << ") "
#define BATON_CHECK_GE(a, b) BATON_CHECK((a) >= (b)) << "(" << (a) << " vs " << (b) << ") "
#define BATON_CHECK_LE(a, b) BATON_CHECK((a) <= (b)) << "(" << (a) << " vs " << (b) << ") "

#ifdef NDEBUG
#define BATON_DCHECK(cond) BATON_CHECK(true || (cond))
#else
#define BATON_DCHECK(cond) BATON_CHECK(cond)
#endif

#endif  // BATON_COMMON_BASE_LOGGING_H_
