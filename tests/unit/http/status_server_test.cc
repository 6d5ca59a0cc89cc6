// SPDX-License-Identifier: Apache-2.0
#include "common/http/status_server.h"

#include <atomic>

#include "absl/status/status.h"
#include "common/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(StatusServer, HealthReadyAndMetrics) {
  MetricRegistry metrics;
  metrics.GetCounter("baton_x_total", "Things.")->Increment(3);
  std::atomic<bool> ready{false};
  StatusServerOptions options;
  options.address = "127.0.0.1:0";
  options.metrics = &metrics;
  options.ready = [&] { return ready ? absl::OkStatus() : absl::UnavailableError("no \"decode\" worker"); };
  ASSERT_OK_AND_ASSIGN(const auto server, StatusServer::Start(options));
  ASSERT_OK_AND_ASSIGN(const HttpResponse health, HttpGet(server->address(), "/health"));
  EXPECT_EQ(health.status, 200);
  EXPECT_THAT(health.body, HasSubstr("\"status\":\"ok\""));
  ASSERT_OK_AND_ASSIGN(const HttpResponse not_ready, HttpGet(server->address(), "/ready"));
  EXPECT_EQ(not_ready.status, 503);
  EXPECT_EQ(not_ready.body, R"({"ready":false,"reason":"no \"decode\" worker"})");
  ready = true;
  ASSERT_OK_AND_ASSIGN(const HttpResponse now_ready, HttpGet(server->address(), "/ready?x=1"));
  EXPECT_EQ(now_ready.status, 200);
  ASSERT_OK_AND_ASSIGN(const HttpResponse text, HttpGet(server->address(), "/metrics"));
  EXPECT_EQ(FindHeader(text.headers, "Content-Type"), MetricRegistry::kContentType);
  EXPECT_THAT(text.body, HasSubstr("\nbaton_x_total 3\n"));
  ASSERT_OK_AND_ASSIGN(const HttpResponse missing, HttpGet(server->address(), "/nothing\xFF"));
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("/nothing\xEF\xBF\xBD"));
  ASSERT_OK_AND_ASSIGN(const HttpResponse post, HttpFetch({.address = server->address(), .method = "POST", .target = "/health"}));
  EXPECT_EQ(post.status, 405);
}

}  // namespace
}  // namespace baton
