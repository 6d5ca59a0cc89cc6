// SPDX-License-Identifier: Apache-2.0
#include "common/trace/tracer.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_queue.h"
#include "common/base/json.h"
#include "common/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(20);

// What a collector was sent, and answers with `status`.
class Collector {
 public:
  explicit Collector(int status) {
    auto server = HttpServer::Start({.address = "127.0.0.1:0"}, [this, status](HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
      paths_.TryPush(std::string(request.path));
      bodies_.TryPush(std::string(request.body));
      writer->Send(status, "application/json", "{}");
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string endpoint() const { return absl::StrCat("http://127.0.0.1:", server_->port()); }
  std::optional<std::string> NextPath() { return paths_.Pop(kLong); }
  std::optional<std::string> NextBody() { return bodies_.Pop(kLong); }

 private:
  BoundedQueue<std::string> paths_{1000}, bodies_{1000};
  std::unique_ptr<HttpServer> server_;
};

double CounterOf(const MetricRegistry& metrics, const std::string& result) {
  const std::string text = metrics.RenderPrometheus(), key = absl::StrCat("baton_trace_spans_total{result=\"", result, "\"} ");
  const size_t at = text.find(key);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + key.size()));
}

Span SpanOf(const TraceContext& context, const std::string& name) {
  return {.context = context, .name = name, .begin = absl::Seconds(1), .end = absl::Seconds(2)};
}

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Tracer, SendsSpansToACollector) {
  Collector collector(200);
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.otlp_endpoint = collector.endpoint(), .service = "s"}, &metrics));
  const TraceContext context = tracer->Begin(std::nullopt);
  EXPECT_TRUE(tracer->Records(context));
  tracer->Record(SpanOf(context, "one"));
  tracer.reset();  // What is queued is sent first.
  EXPECT_EQ(collector.NextPath(), "/v1/traces");
  const auto body = collector.NextBody();
  ASSERT_TRUE(body.has_value());
  EXPECT_THAT(*body, HasSubstr(context.TraceId()));
  EXPECT_EQ(CounterOf(metrics, "written"), 1);
}

TEST(Tracer, ThePathOfACollectorIsKept) {
  Collector collector(200);
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.otlp_endpoint = collector.endpoint() + "/in/traces"}, &metrics));
  tracer->Record(SpanOf(tracer->Begin(std::nullopt), "one"));
  EXPECT_EQ(collector.NextPath(), "/in/traces");
}

TEST(Tracer, ACollectorThatRefusesOrIsAwayCostsSpansOnly) {
  MetricRegistry metrics;
  {
    Collector collector(500);
    ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.otlp_endpoint = collector.endpoint()}, &metrics));
    tracer->Record(SpanOf(tracer->Begin(std::nullopt), "one"));
    tracer.reset();
    EXPECT_EQ(CounterOf(metrics, "failed"), 1);
  }
  std::string nobody;
  {
    Collector collector(200);
    nobody = collector.endpoint();
  }
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.otlp_endpoint = nobody}, &metrics));
  tracer->Record(SpanOf(tracer->Begin(std::nullopt), "two"));
  tracer.reset();
  EXPECT_EQ(CounterOf(metrics, "failed"), 2);
  EXPECT_EQ(CounterOf(metrics, "written"), 0);
}

TEST(Tracer, AFullQueueDropsAndCounts) {
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.file = testing::TempPath("spans.json"), .max_queued = 0}, &metrics));
  for (int i = 0; i < 5; ++i) tracer->Record(SpanOf(tracer->Begin(std::nullopt), "x"));
  EXPECT_EQ(CounterOf(metrics, "dropped"), 5);
  tracer.reset();
  EXPECT_EQ(CounterOf(metrics, "written"), 0);
}

TEST(Tracer, SeveralProcessesShareAFile) {
  const std::string path = testing::TempPath("trace.json");
  MetricRegistry metrics;
  for (const char* service : {"one", "two"}) {
    ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.file = path, .service = service}, &metrics));
    tracer->Record(SpanOf(tracer->Begin(std::nullopt), absl::StrCat("of ", service)));
  }
  std::string text = Read(path);
  ASSERT_EQ(text.substr(0, 2), "[\n");
  ASSERT_EQ(text.substr(text.size() - 2), ",\n");
  text.replace(text.size() - 2, 2, "]");
  ASSERT_OK_AND_ASSIGN(const auto events, ParseJson(text));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1]["name"], "of one");
  EXPECT_EQ(events[3]["name"], "of two");
}

TEST(Tracer, AFileHasABound) {
  const std::string path = testing::TempPath("trace.json");
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.file = path, .max_file_bytes = 200}, &metrics));
  tracer->Record(SpanOf(tracer->Begin(std::nullopt), std::string(300, 'n')));
  tracer.reset();
  EXPECT_LE(Read(path).size(), 200u);
  EXPECT_EQ(CounterOf(metrics, "failed"), 1);
}

TEST(Tracer, TheClientsFlagIsObeyedAndItsSpanIsTheParent) {
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.file = testing::TempPath("t"), .sample = 0}, &metrics));
  for (const bool sampled : {false, true}) {
    const TraceContext client = NewTrace(sampled);
    const TraceContext own = tracer->Begin(client);
    EXPECT_EQ(own.TraceId(), client.TraceId());
    EXPECT_EQ(own.span == client.span, !sampled);  // What is not recorded is handed on as it came.
    EXPECT_EQ(tracer->Records(own), sampled);
  }
  EXPECT_FALSE(tracer->Begin(std::nullopt).valid());
}

TEST(Tracer, WhatAClientGotWrongIsNotQuoted) {
  Collector collector(200);
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({.otlp_endpoint = collector.endpoint()}, &metrics));
  for (const absl::Status& status : {absl::InvalidArgumentError("stop has \"a secret\""), absl::NotFoundError("no model a secret")}) {
    Span span = SpanOf(tracer->Begin(std::nullopt), "x");
    span.status = status;
    tracer->Record(std::move(span));
  }
  Span span = SpanOf(tracer->Begin(std::nullopt), "x");
  span.status = absl::UnavailableError("worker d-1 left");
  tracer->Record(std::move(span));
  tracer.reset();
  const auto body = collector.NextBody();
  ASSERT_TRUE(body.has_value());
  EXPECT_THAT(*body, ::testing::Not(HasSubstr("secret")));
  for (const char* part : {"INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "worker d-1 left"}) EXPECT_THAT(*body, HasSubstr(part));
}

TEST(Tracer, WithoutAPlaceToWriteNothingIsSampled) {
  MetricRegistry metrics;
  ASSERT_OK_AND_ASSIGN(auto tracer, Tracer::Create({}, &metrics));
  EXPECT_FALSE(tracer->Begin(std::nullopt).valid());
  const TraceContext client = NewTrace(true);
  EXPECT_EQ(tracer->Begin(client).span, client.span);  // As by a proxy that does not take part.
  EXPECT_FALSE(tracer->Records(tracer->Begin(client)));
  tracer->Record(SpanOf(NewTrace(true), "x"));
  EXPECT_EQ(CounterOf(metrics, "dropped"), 0);
}

TEST(Tracer, WrongOptionsAreNamed) {
  MetricRegistry metrics;
  EXPECT_THAT(Tracer::Create({.otlp_endpoint = "https://collector:4318"}, &metrics),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--trace-otlp")));
  EXPECT_THAT(Tracer::Create({.otlp_endpoint = "http://collector:99999"}, &metrics),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--trace-otlp")));
  EXPECT_THAT(Tracer::Create({.sample = 1.5}, &metrics), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--trace-sample 1.5")));
  EXPECT_THAT(Tracer::Create({.file = "/nowhere/at/all"}, &metrics), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--trace-file")));
}

}  // namespace
}  // namespace baton
