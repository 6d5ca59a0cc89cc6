// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_context.h"

#include <algorithm>

#include "absl/strings/ascii.h"
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

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
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
  const bool printable = std::all_of(tracestate.begin(), tracestate.end(), [](unsigned char c) { return absl::ascii_isprint(c); });
  if (printable && tracestate.size() <= kMaxStateBytes) context.state = std::string(tracestate);
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

TraceContext SharedSpan(const TraceContext& trace, std::initializer_list<uint64_t> numbers) {
  TraceContext shared = trace;
  uint64_t hash = Mix(trace.trace_high ^ Mix(trace.trace_low));
  for (const uint64_t number : numbers) hash = Mix(hash ^ number);
  shared.span = std::max<uint64_t>(hash, 1);
  return shared;
}

}  // namespace baton
