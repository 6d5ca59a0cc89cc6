// SPDX-License-Identifier: Apache-2.0
#include "common/trace/span_format.h"

#include "absl/strings/str_cat.h"
#include "common/base/json.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// A row of the viewer is a 32-bit number.
int64_t RowOf(const Span& span) {
  return static_cast<int64_t>((span.row != 0 ? span.row : span.context.trace_low) & 0x7fffffff);
}

Json TextAttribute(absl::string_view key, const std::string& value) {
  return {{"key", std::string(key)}, {"value", {{"stringValue", value}}}};
}

Json OtlpAttribute(const SpanAttribute& attribute) {
  Json value;
  if (const auto* whole = std::get_if<int64_t>(&attribute.second)) {
    value["intValue"] = absl::StrCat(*whole);
  } else if (const auto* real = std::get_if<double>(&attribute.second)) {
    value["doubleValue"] = *real;
  } else {
    value["stringValue"] = std::get<std::string>(attribute.second);
  }
  return {{"key", attribute.first}, {"value", std::move(value)}};
}

std::string Nanoseconds(absl::Time origin, MonotonicTime time) { return absl::StrCat(absl::ToUnixNanos(origin + time)); }

Json OtlpSpan(const TraceSource& source, const Span& span) {
  Json json{{"traceId", span.context.TraceId()}, {"spanId", span.context.SpanId()}};
  if (!span.context.state.empty()) json["traceState"] = span.context.state;
  if (span.parent != 0) json["parentSpanId"] = TraceContext{.span = span.parent}.SpanId();
  json["name"] = span.name;
  json["kind"] = static_cast<int>(span.kind);
  json["startTimeUnixNano"] = Nanoseconds(source.origin, span.begin);
  json["endTimeUnixNano"] = Nanoseconds(source.origin, span.end);
  Json attributes = Json::array();
  for (const SpanAttribute& attribute : span.attributes) attributes.push_back(OtlpAttribute(attribute));
  json["attributes"] = std::move(attributes);
  // STATUS_CODE_OK is for people to set; a span that went well has none.
  if (!span.status.ok()) json["status"] = {{"code", 2}, {"message", std::string(span.status.message())}};
  return json;
}

}  // namespace

std::string OtlpJson(const TraceSource& source, const std::vector<Span>& spans) {
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(OtlpSpan(source, span));
  Json resource{{"attributes", Json::array({TextAttribute("service.name", source.service), TextAttribute("service.version", source.version),
                                            TextAttribute("service.instance.id", source.instance)})}};
  Json scope{{"scope", {{"name", "baton"}, {"version", source.version}}}, {"spans", std::move(list)}};
  Json resource_spans{{"resource", std::move(resource)}, {"scopeSpans", Json::array({std::move(scope)})}};
  return DumpJson(Json{{"resourceSpans", Json::array({std::move(resource_spans)})}});
}

std::string ChromeTraceEvents(const TraceSource& source, const std::vector<Span>& spans) {
  std::string text;
  for (const Span& span : spans) {
    Json args{{"trace", span.context.TraceId()}, {"span", span.context.SpanId()}};
    if (span.parent != 0) args["parent"] = TraceContext{.span = span.parent}.SpanId();
    for (const auto& [key, value] : span.attributes) {
      std::visit([&args, &name = key](const auto& held) { args[name] = held; }, value);
    }
    if (!span.status.ok()) args["error"] = std::string(span.status.message());
    const Json event{{"name", span.name},
                     {"ph", "X"},
                     {"ts", absl::ToDoubleMicroseconds(source.origin + span.begin - absl::UnixEpoch())},
                     {"dur", absl::ToDoubleMicroseconds(span.end - span.begin)},
                     {"pid", source.pid},
                     {"tid", RowOf(span)},
                     {"args", std::move(args)}};
    absl::StrAppend(&text, DumpJson(event), ",\n");
  }
  return text;
}

std::string ChromeTraceProcess(const TraceSource& source) {
  const Json event{{"name", "process_name"},
                   {"ph", "M"},
                   {"pid", source.pid},
                   {"args", {{"name", absl::StrCat(source.service, " ", source.instance)}}}};
  return absl::StrCat(DumpJson(event), ",\n");
}

}  // namespace baton
