// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TRACE_TRACE_CONTEXT_H_
#define BATON_COMMON_TRACE_TRACE_CONTEXT_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// HTTP header and gRPC metadata of W3C Trace Context, level 1 (https://www.w3.org/TR/trace-context/).
inline constexpr char kTraceparentHeader[] = "traceparent";
inline constexpr char kTracestateHeader[] = "tracestate";

// Which span of which trace something belongs to. The default one is no span.
struct TraceContext {
  uint64_t trace_high = 0, trace_low = 0;  // 128 bits, not all 0.
  uint64_t span = 0;                       // Not 0.
  bool sampled = false;                    // Somebody before us records this trace, so we do too.
  std::string state;                       // tracestate: handed on as it came.

  bool valid() const { return (trace_high != 0 || trace_low != 0) && span != 0; }
  // 32 and 16 hexadecimal digits, as every exporter writes them.
  std::string TraceId() const;
  std::string SpanId() const;
};

// Nothing where `traceparent` is malformed: the standard says to begin a new trace then. Versions to come are read as far as
// version 00 goes. A `tracestate` of more than 512 bytes is dropped, as the standard allows, and so is one that is not printable ASCII: it
// becomes a header of others.
std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent, absl::string_view tracestate = "");

// "00-<trace>-<span>-<flags>".
std::string FormatTraceparent(const TraceContext& context);

// The beginning of a new trace.
TraceContext NewTrace(bool sampled);
// Another span of `parent`'s trace.
TraceContext NewChild(const TraceContext& parent);
// The span of this trace that stands for work which is known by `numbers`: processes that know them need not tell each other.
TraceContext SharedSpan(const TraceContext& trace, std::initializer_list<uint64_t> numbers);

}  // namespace baton

#endif  // BATON_COMMON_TRACE_TRACE_CONTEXT_H_
