// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_ISSUES_ROUTER_FIXTURE_H_
#define BATON_TESTS_ISSUES_ROUTER_FIXTURE_H_

#include <string>
#include <utility>

#include "tests/unit/router/service_fixture.h"

namespace baton::testing {

// A router over loopback with a pair of stub workers, and what it answers.
class RouterErrorsTest : public ServiceTest {
 protected:
  void Workers(int context = 64, const std::string& api_key = "") {
    for (const auto& [id, role] : {std::pair("p-1", internal::PREFILL), std::pair("d-1", internal::DECODE)}) {
      workers_.push_back(StubWorker::Start({.id = id,
                                            .role = role,
                                            .router = router_->grpc_address(),
                                            .context_length = context,
                                            .script = {.tokens = Bytes("hello")},
                                            .api_key = api_key}));
      ASSERT_NE(workers_.back(), nullptr);
    }
    ASSERT_TRUE(WaitUntil([&] { return router_->core()->Ready().ok(); }));
  }
  static nlohmann::json Error(const HttpResponse& response) {
    auto json = ParseJson(response.body);
    EXPECT_TRUE(json.ok()) << response.body;
    return json.ok() ? (*json)["error"] : nlohmann::json();
  }
  HttpResponse Fetch(const std::string& method, const std::string& path, HttpHeaders headers = {}, const std::string& body = "") {
    auto response = HttpFetch(
        {.address = router_->http_address(), .method = method, .target = path, .headers = std::move(headers), .body = body});
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : HttpResponse();
  }
};

}  // namespace baton::testing

#endif  // BATON_TESTS_ISSUES_ROUTER_FIXTURE_H_
