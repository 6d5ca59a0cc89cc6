// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_flags.h"

#include "absl/flags/flag.h"
#include "common/base/status_macros.h"

ABSL_FLAG(std::string, trace_otlp, "", "http://HOST:PORT[/PATH] of an OpenTelemetry collector that spans of requests are sent to (OTLP over HTTP, JSON); "
          "empty: none.");
ABSL_FLAG(std::string, trace_file, "", "File that spans are appended to as a Chrome trace; processes of one machine may share it. Empty: none.");
ABSL_FLAG(double, trace_sample, 1, "Share of requests that are traced, 0 to 1, of those whose client does not say.");

namespace baton {

std::vector<std::string> TraceFlags() { return {"trace_otlp", "trace_file", "trace_sample"}; }

absl::StatusOr<TracerOptions> TracerOptionsFromFlags(const std::string& service) {
  TracerOptions options;
  options.otlp_endpoint = absl::GetFlag(FLAGS_trace_otlp);
  options.file = absl::GetFlag(FLAGS_trace_file);
  options.sample = absl::GetFlag(FLAGS_trace_sample);
  options.service = service;
  BATON_RETURN_IF_ERROR(options.Validate());
  return options;
}

}  // namespace baton
