// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TRACE_SPAN_H_
#define BATON_COMMON_TRACE_SPAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/trace/trace_context.h"

namespace baton {

// OpenTelemetry's: who asked for a span's work.
enum class SpanKind { kInternal = 1, kServer = 2, kClient = 3 };

using SpanAttribute = std::pair<std::string, std::variant<int64_t, double, std::string>>;

// A piece of work that has ended. Attributes never hold text of a request.
struct Span {
  TraceContext context;        // Its own trace and id.
  uint64_t parent = 0;         // 0: the trace begins here.
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  MonotonicTime begin{}, end{};  // This process's clock.
  std::vector<SpanAttribute> attributes;
  absl::Status status;
  // The viewer's row that a Chrome trace puts it into, its low 31 bits: spans of a process in one row lie apart or within each
  // other. 0: its trace's.
  uint64_t row = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_TRACE_SPAN_H_
