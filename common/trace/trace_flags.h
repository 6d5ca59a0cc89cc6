// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TRACE_TRACE_FLAGS_H_
#define BATON_COMMON_TRACE_TRACE_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trace/tracer.h"

namespace baton {

// The flags of tracing, which all processes of a cluster have: --trace-otlp, --trace-file and --trace-sample. Names for --help
// and the configuration.
std::vector<std::string> TraceFlags();

// As the flags say, for a program called `service`.
//   INVALID_ARGUMENT  as TracerOptions::Validate.
absl::StatusOr<TracerOptions> TracerOptionsFromFlags(const std::string& service);

}  // namespace baton

#endif  // BATON_COMMON_TRACE_TRACE_FLAGS_H_
