// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_context.h"

#include "absl/strings/str_format.h"
#include "common/base/ids.h"

namespace baton {
namespace {

constexpr size_t kMaxStateBytes = 512;
constexpr size_t kVersion00Bytes = 55;  // 2 + 1 + 32 + 1 + 16 + 1 + 2

// Lower-case hexadecimal digits only, as the standard has it; at most 16 of them.
std::optional<uint64_t> ParseHex(absl::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

uint64_t RandomNotZero() {
  while (true) {
    if (const uint64_t value = RandomUint64(); value != 0) return value;
  }
}

}  // namespace

std::string TraceContext::TraceId() const { return absl::StrFormat("%016x%016x", trace_high, trace_low); }

std::string TraceContext::SpanId() const { return absl::StrFormat("%016x", span); }

std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent, absl::string_view tracestate) {
  if (traceparent.size() < kVersion00Bytes) return std::nullopt;
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return std::nullopt;
  const auto version = ParseHex(traceparent.substr(0, 2));
  const auto high = ParseHex(traceparent.substr(3, 16));
  const auto low = ParseHex(traceparent.substr(19, 16));
  const auto span = ParseHex(traceparent.substr(36, 16));
  const auto flags = ParseHex(traceparent.substr(53, 2));
  if (!version || !high || !low || !span || !flags || *version == 0xff) return std::nullopt;
  const bool longer = traceparent.size() > kVersion00Bytes;
  if (longer && (*version == 0 || traceparent[kVersion00Bytes] != '-')) return std::nullopt;
  TraceContext context{.trace_high = *high, .trace_low = *low, .span = *span, .sampled = (*flags & 1) != 0};
  if (!context.valid()) return std::nullopt;
  if (tracestate.size() <= kMaxStateBytes) context.state = std::string(tracestate);
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  return absl::StrFormat("00-%s-%s-%02x", context.TraceId(), context.SpanId(), context.sampled ? 1 : 0);
}

TraceContext NewTrace(bool sampled) {
  return {.trace_high = RandomNotZero(), .trace_low = RandomNotZero(), .span = RandomNotZero(), .sampled = sampled};
}

TraceContext NewChild(const TraceContext& parent) {
  TraceContext child = parent;
  child.span = RandomNotZero();
  return child;
}

}  // namespace baton
