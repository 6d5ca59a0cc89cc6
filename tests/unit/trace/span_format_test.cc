// SPDX-License-Identifier: Apache-2.0
#include "common/trace/span_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TraceSource Source() {
  return {.service = "baton-router", .instance = "r-1", .version = "9.9", .pid = 7, .origin = absl::FromUnixSeconds(1000)};
}

Span Example() {
  return {.context = {.trace_high = 1, .trace_low = 0xabc, .span = 0x20, .sampled = true, .state = "x=y"},
          .parent = 0x10,
          .name = "prefill",
          .kind = SpanKind::kServer,
          .begin = absl::Seconds(2),
          .end = absl::Seconds(2) + absl::Milliseconds(3),
          .attributes = {{"tokens", int64_t{1} << 60}, {"share", 0.5}, {"worker", std::string("p-1 \"x\"")}},
          .status = absl::UnavailableError("gone")};
}

nlohmann::json Parsed(const std::string& text) {
  const auto json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : nlohmann::json();
}

TEST(SpanFormat, OtlpHasEverything) {
  const nlohmann::json body = Parsed(OtlpJson(Source(), {Example()}));
  const nlohmann::json& resource = body["resourceSpans"][0]["resource"]["attributes"];
  EXPECT_EQ(resource[0], Parsed(R"({"key":"service.name","value":{"stringValue":"baton-router"}})"));
  EXPECT_EQ(body["resourceSpans"][0]["scopeSpans"][0]["spans"][0], Parsed(R"({
    "traceId": "00000000000000010000000000000abc", "spanId": "0000000000000020", "traceState": "x=y",
    "parentSpanId": "0000000000000010", "name": "prefill", "kind": 2,
    "startTimeUnixNano": "1002000000000", "endTimeUnixNano": "1002003000000",
    "attributes": [{"key": "tokens", "value": {"intValue": "1152921504606846976"}},
                   {"key": "share", "value": {"doubleValue": 0.5}},
                   {"key": "worker", "value": {"stringValue": "p-1 \"x\""}}],
    "status": {"code": 2, "message": "gone"}})"));
}

TEST(SpanFormat, ASpanThatBeginsATraceAndWentWellSaysNeitherParentNorStatus) {
  Span span = Example();
  span.parent = 0;
  span.status = absl::OkStatus();
  const nlohmann::json json = Parsed(OtlpJson(Source(), {span}))["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_FALSE(json.contains("parentSpanId"));
  EXPECT_FALSE(json.contains("status"));
}

TEST(SpanFormat, ChromesEventsAreLinesOfAnArray) {
  const std::string text = absl::StrCat(ChromeTraceProcess(Source()), ChromeTraceEvents(Source(), {Example(), Example()}));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u);
  for (const std::string& line : lines) EXPECT_EQ(line.back(), ',');
  const nlohmann::json event = Parsed(lines[1].substr(0, lines[1].size() - 1));
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["name"], "prefill");
  EXPECT_EQ(event["ts"], 1002000000.0);
  EXPECT_EQ(event["dur"], 3000.0);
  EXPECT_EQ(event["pid"], 7);
  EXPECT_EQ(event["tid"], 0xabc);
  EXPECT_EQ(event["args"]["span"], "0000000000000020");
  EXPECT_EQ(event["args"]["parent"], "0000000000000010");
  EXPECT_EQ(event["args"]["worker"], "p-1 \"x\"");
  EXPECT_EQ(event["args"]["error"], "gone");
  EXPECT_EQ(Parsed(lines[0].substr(0, lines[0].size() - 1))["args"]["name"], "baton-router r-1");
}

TEST(SpanFormat, ASpanMayHaveARowOfItsOwn) {
  Span span = Example();
  span.row = 0xf00000005;
  const std::string text = ChromeTraceEvents(Source(), {span});
  EXPECT_EQ(Parsed(text.substr(0, text.size() - 2))["tid"], 5);
}

}  // namespace
}  // namespace baton
