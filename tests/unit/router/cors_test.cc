// SPDX-License-Identifier: Apache-2.0
#include "router/cors.h"

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

HttpRequest From(const std::string& origin, const std::string& method = "POST", HttpHeaders more = {}) {
  HttpRequest request{.method = method, .headers = std::move(more)};
  request.headers.emplace_back("Origin", origin);
  return request;
}

TEST(CorsTest, OriginsAreThoseThatAreNamed) {
  ASSERT_OK_AND_ASSIGN(const Cors cors, Cors::Parse("https://a.example, http://localhost:3000"));
  const auto allowed = [&](const std::string& origin) { return FindHeader(cors.HeadersFor(From(origin)), "access-control-allow-origin"); };
  EXPECT_EQ(allowed("https://a.example"), "https://a.example");
  EXPECT_EQ(allowed("http://localhost:3000"), "http://localhost:3000");
  for (const char* other : {"http://a.example", "https://a.example:444", "https://b.example", "null", "", "https://a.example.evil"}) {
    EXPECT_EQ(allowed(other), std::nullopt) << other;
    EXPECT_EQ(FindHeader(cors.HeadersFor(From(other)), "vary"), "Origin") << other;
  }
  EXPECT_EQ(FindHeader(cors.HeadersFor(HttpRequest{}), "access-control-allow-origin"), std::nullopt);
}

TEST(CorsTest, AStarIsEverybody) {
  ASSERT_OK_AND_ASSIGN(const Cors cors, Cors::Parse("*"));
  const HttpHeaders headers = cors.HeadersFor(From("https://a.example"));
  EXPECT_EQ(FindHeader(headers, "access-control-allow-origin"), "*");
  EXPECT_EQ(FindHeader(headers, "vary"), std::nullopt);
}

TEST(CorsTest, OffSaysNothing) {
  ASSERT_OK_AND_ASSIGN(const Cors cors, Cors::Parse(" "));
  EXPECT_FALSE(cors.on());
  EXPECT_THAT(cors.HeadersFor(From("https://a.example")), IsEmpty());
  EXPECT_FALSE(cors.IsPreflight(From("https://a.example", "OPTIONS", {{"Access-Control-Request-Method", "POST"}})));
}

TEST(CorsTest, WhatIsNoOriginIsNamed) {
  for (const char* bad : {"a.example", "https://a.example/", "https://A.example", "https://", "://x", "https://u@a.example", "https://*.example", "https://a b"}) {
    EXPECT_THAT(Cors::Parse(bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat("--allowed-origins: \"", bad, "\" is no origin")))) << bad;
  }
}

TEST(CorsTest, HeadersAreRepeatedWhereTheyAreNames) {
  ASSERT_OK_AND_ASSIGN(const Cors cors, Cors::Parse("*"));
  const auto allowed = [&](const std::string& wanted) {
    return FindHeader(*cors.AnswerPreflight(From("https://a.example", "OPTIONS", {{"Access-Control-Request-Headers", wanted}})), "access-control-allow-headers");
  };
  EXPECT_EQ(allowed("authorization,content-type,x-stainless-os"), "authorization,content-type,x-stainless-os");
  for (const std::string& bad : {std::string("a\"b"), std::string("x;y"), std::string("caf\xc3\xa9"), std::string(1025, 'x')}) {
    EXPECT_EQ(allowed(bad), "Authorization, Content-Type, X-Request-Id") << bad;
  }
}

class CorsServiceTest : public ServiceTest {
 protected:
  HttpResponse Fetch(const std::string& method, const std::string& path, HttpHeaders headers) {
    auto response = HttpFetch({.address = router_->http_address(), .method = method, .target = path, .headers = std::move(headers), .timeout = kHttpTimeout});
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : HttpResponse();
  }
};

TEST_F(CorsServiceTest, PagesMayAskAndReadWhatTheyAreTold) {
  RouterOptions options;
  options.core.cors = *Cors::Parse("https://a.example");
  StartRouter(options);
  const HttpResponse asked = Fetch("OPTIONS", "/v1/chat/completions",
                                   {{"Origin", "https://a.example"}, {"Access-Control-Request-Method", "POST"}, {"Access-Control-Request-Headers", "authorization"}});
  EXPECT_EQ(asked.status, 200);
  EXPECT_EQ(asked.body, "");
  EXPECT_EQ(FindHeader(asked.headers, "access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(FindHeader(asked.headers, "access-control-allow-methods"), "GET, HEAD, POST");
  EXPECT_EQ(FindHeader(asked.headers, "access-control-allow-headers"), "authorization");
  const HttpResponse refused = Fetch("OPTIONS", "/v1/models", {{"Origin", "https://b.example"}, {"Access-Control-Request-Method", "GET"}});
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("origin https://b.example is not among --allowed-origins"));
  // Errors can be read as well.
  for (const auto& [method, path, status] : {std::tuple("GET", "/v1/models", 200), {"GET", "/nowhere", 404}, {"POST", "/v1/completions", 400}}) {
    const HttpResponse answer = Fetch(method, path, {{"Origin", "https://a.example"}});
    EXPECT_EQ(answer.status, status) << path;
    EXPECT_EQ(FindHeader(answer.headers, "access-control-allow-origin"), "https://a.example") << path;
    EXPECT_EQ(FindHeader(Fetch(method, path, {{"Origin", "https://b.example"}}).headers, "access-control-allow-origin"), std::nullopt) << path;
  }
  EXPECT_EQ(Fetch("OPTIONS", "/v1/models", {}).status, 405);  // No browser's question.
}

TEST_F(CorsServiceTest, WithoutTheFlagNothingIsSaid) {
  const HttpHeaders page = {{"Origin", "https://a.example"}, {"Access-Control-Request-Method", "GET"}};
  EXPECT_EQ(Fetch("OPTIONS", "/v1/models", page).status, 405);
  EXPECT_EQ(FindHeader(Fetch("GET", "/v1/models", page).headers, "access-control-allow-origin"), std::nullopt);
}

}  // namespace
}  // namespace baton::testing
