// SPDX-License-Identifier: Apache-2.0
// Ten thousand spoilt requests over sockets: each has an answer or a closed connection, none is the router's fault, and it serves on.
#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/issues/router_fixture.h"
#include "tests/unit/http/raw_client.h"

namespace baton::testing {
namespace {

constexpr int kRequests = kSlowness > 1 ? 1000 : 10000;

const char* const kBodies[] = {
    R"({"model":"stub","prompt":"abc","max_tokens":5,"temperature":0.5,"top_p":0.9,"seed":7,"n":2,"stop":["x","y"],"stream":true,)"
    R"("logit_bias":{"5":-100},"logprobs":3,"stream_options":{"include_usage":true}})",
    R"({"prompt":[[1,2],[3]],"priority":-5,"cache_salt":"s","request_id":"r","user":null,"best_of":1})",
    R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":)"
    R"([{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}],"tools":[{"type":"function",)"
    R"("function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto","response_format":{"type":"json_object"}})"};

// One to four places of `bytes` are changed, cut or doubled.
std::string Spoil(std::string bytes, std::mt19937& random) {
  for (uint32_t i = 0, n = 1 + random() % 4; i < n && !bytes.empty(); ++i) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0: bytes[at] = static_cast<char>(random()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
      case 2: bytes.erase(at, 1 + random() % 8); break;
      case 3: bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 16)); break;
      default: bytes.insert(at, 1, "{}[]\",:0\\\0"[random() % 10]);
    }
  }
  return bytes;
}

std::string Request(const std::string& path, const std::string& body) {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ", body.size(),
                      "\r\n\r\n", body);
}

TEST_F(RouterErrorsTest, TenThousandMalformedRequestsAreAnsweredAndServiceGoesOn) {
  RouterOptions options;
  options.http_threads = 1;
  StartRouter(options);
  Workers();
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(router_->http_address().substr(router_->http_address().rfind(':') + 1), &port));
  std::map<int, int> statuses;
  for (int i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);  // The seed.
    std::mt19937 random(static_cast<uint32_t>(i));
    const size_t which = random() % std::size(kBodies);
    const char* const path = which == 2 ? "/v1/chat/completions" : "/v1/completions";
    const bool whole = random() % 4 == 0;  // The head is spoilt as well.
    const std::string bytes = whole ? Spoil(Request(path, kBodies[which]), random) : Request(path, Spoil(kBodies[which], random));
    RawClient client(static_cast<uint16_t>(port));
    ASSERT_TRUE(client.Send(bytes));
    if (whole) client.SendFin();  // What is to come by a wrong length does not come.
    const std::string answer = client.ReadAll();
    if (answer.empty() && whole) continue;  // It took itself for gone.
    int status = 0;
    ASSERT_TRUE(absl::StartsWith(answer, "HTTP/1.1 ") && absl::SimpleAtoi(answer.substr(9, 3), &status)) << absl::CHexEscape(answer);
    ++statuses[status];
    // 501 and 505 are transfer encodings and versions of HTTP that nobody has.
    EXPECT_TRUE((status >= 200 && status < 500) || status == 501 || status == 505) << absl::CHexEscape(bytes) << "\n" << answer;
    if (status == 200 && !whole) {
      EXPECT_TRUE(absl::StrContains(answer, "finish_reason") || absl::StrContains(answer, "[DONE]")) << absl::CHexEscape(bytes) << "\n" << answer;
    }
  }
  EXPECT_GT(statuses[200], kRequests / 50);
  EXPECT_GT(statuses[400], kRequests / 4);
  const HttpResponse good = Post("/v1/completions", R"({"prompt":"abc","max_tokens":5})");
  EXPECT_EQ(good.status, 200) << good.body;
  EXPECT_TRUE(WaitUntil([&] { return router_->core()->num_running() == 0; }));
}

}  // namespace
}  // namespace baton::testing
