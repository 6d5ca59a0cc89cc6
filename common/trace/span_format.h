// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TRACE_SPAN_FORMAT_H_
#define BATON_COMMON_TRACE_SPAN_FORMAT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/trace/span.h"

namespace baton {

// The process that spans come from.
struct TraceSource {
  std::string service;   // "baton-router"
  std::string instance;  // A worker's id; the router's.
  std::string version;
  int pid = 0;
  absl::Time origin;     // Wall time of MonotonicTime 0: one for all spans of a process, so that a clock that is set tears none.
};

// Body of an OTLP/HTTP request in JSON (opentelemetry-proto, ExportTraceServiceRequest: ids in hexadecimal, times as decimal
// strings of nanoseconds, 64-bit integers as strings).
std::string OtlpJson(const TraceSource& source, const std::vector<Span>& spans);

// Chrome's trace event format, one complete event ("ph":"X") per line, each with a comma behind it: a file that begins with
// "[" and holds such lines is one that chrome://tracing and Perfetto open. A process is one of the viewer's processes;
// Span::row says which row of it. A span's ids and its parent's are among its arguments.
std::string ChromeTraceEvents(const TraceSource& source, const std::vector<Span>& spans);
// The events that name the process.
std::string ChromeTraceProcess(const TraceSource& source);

}  // namespace baton

#endif  // BATON_COMMON_TRACE_SPAN_FORMAT_H_
