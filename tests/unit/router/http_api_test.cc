// SPDX-License-Identifier: Apache-2.0
// The OpenAI-compatible API over loopback. Case numbers are those of cases.md.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HttpApiTest : public ServiceTest {
 protected:
  void Workers(const std::string& text = "hello", StubScript script = {}) {
    script.tokens = Bytes(text);
    prefill_ = AddWorker("p-1", internal::PREFILL, {.stall_prefill = script.stall_prefill});
    decode_ = AddWorker("d-1", internal::DECODE, script);
  }
  static nlohmann::json Parse(const std::string& text) {
    auto json = ParseJson(text);
    EXPECT_TRUE(json.ok()) << text;
    return json.ok() ? *json : nlohmann::json();
  }
  // The data of each server-sent event.
  static std::vector<std::string> Events(const std::string& body) {
    std::vector<std::string> events;
    for (absl::string_view block : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
      EXPECT_EQ(block.substr(0, 6), "data: ") << block;
      events.emplace_back(block.substr(6));
    }
    return events;
  }
  StubWorker* prefill_ = nullptr;
  StubWorker* decode_ = nullptr;
};

TEST_F(HttpApiTest, CompletionInOnePiece) {
  Workers();
  const HttpResponse response = Post("/v1/completions", R"({"model":"stub","prompt":"abc","max_tokens":5,"return_token_ids":true})");
  ASSERT_EQ(response.status, 200) << response.body;
  const auto body = Parse(response.body);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "hello");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["token_ids"].size(), 5u);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], 8);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(body["timeline"]["decode_worker"], "d-1");
  EXPECT_TRUE(FindHeader(response.headers, "x-request-id").has_value());
}

TEST_F(HttpApiTest, B10ChatStreamHasTheExactForm) {
  Workers("hi");
  const HttpResponse response =
      Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2,"stream":true})");
  ASSERT_EQ(response.status, 200);
  EXPECT_THAT(*FindHeader(response.headers, "content-type"), HasSubstr("text/event-stream"));
  const std::vector<std::string> events = Events(response.body);
  ASSERT_EQ(events.size(), 5u) << response.body;
  EXPECT_EQ(events.back(), "[DONE]");
  std::string id;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const auto chunk = Parse(events[i]);
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    if (id.empty()) id = chunk["id"];
    EXPECT_EQ(chunk["id"], id);
    EXPECT_EQ(chunk["choices"].size(), 1u);
    EXPECT_FALSE(chunk.contains("usage"));
  }
  EXPECT_EQ(Parse(events[0])["choices"][0]["delta"], Parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(Parse(events[1])["choices"][0]["delta"], Parse(R"({"content":"h"})"));
  EXPECT_EQ(Parse(events[3])["choices"][0]["delta"], Parse("{}"));
  EXPECT_EQ(Parse(events[3])["choices"][0]["finish_reason"], "length");
}

TEST_F(HttpApiTest, B07UsageComesLastAndOnlyWhenAsked) {
  Workers();
  for (const char* off : {"", R"(,"stream_options":null)", R"(,"stream_options":{"include_usage":false})"}) {
    const auto events = Events(Post("/v1/completions", absl::StrCat(R"({"prompt":"abc","max_tokens":2,"stream":true)", off, "}")).body);
    for (const std::string& event : events) EXPECT_THAT(event, Not(HasSubstr("usage")));
  }
  const auto events = Events(
      Post("/v1/completions", R"({"prompt":"abc","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}})").body);
  ASSERT_GE(events.size(), 2u);
  const auto last = Parse(events.at(events.size() - 2));
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 2);
  EXPECT_EQ(last["usage"]["prompt_tokens"], 3);
}

TEST_F(HttpApiTest, B14NullIsAbsent) {
  Workers();
  for (const char* field : {"temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "n", "stream", "stream_options",
                            "logit_bias", "logprobs", "tools", "user", "response_format", "min_p", "echo", "model"}) {
    const HttpResponse response = Post("/v1/completions", absl::StrCat(R"({"prompt":"abc",")", field, R"(":null})"));
    ASSERT_EQ(response.status, 200) << field << response.body;
    EXPECT_EQ(Parse(response.body)["choices"][0]["text"], "hello") << field;
  }
}

TEST_F(HttpApiTest, B20B22Messages) {
  Workers();
  for (const char* messages :
       {"[]", "null", "[{}]", R"([{"role":"user"}])", R"([{"role":"user","content":[]}])", R"([{"role":"robot","content":"x"}])",
        R"([{"role":"user","content":7}])", R"([{"role":"user","content":[{"type":"image_url"}]}])", "7"}) {
    const HttpResponse response = Post("/v1/chat/completions", absl::StrCat(R"({"messages":)", messages, "}"));
    EXPECT_EQ(response.status, 400) << messages;
    EXPECT_THAT(Parse(response.body)["error"]["param"].get<std::string>(), HasSubstr("messages")) << messages;
  }
  for (const char* assistant : {R"("content":null,)", R"("content":"",)", ""}) {
    const HttpResponse response = Post(
        "/v1/chat/completions",
        absl::StrCat(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant",)", assistant,
                     R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},)",
                     R"({"role":"tool","content":"10.05"}],"max_tokens":1})"));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(Parse(response.body)["usage"]["prompt_tokens"], 29);
  }
}

TEST_F(HttpApiTest, B23TemplateErrorIsTheClients) {
  Workers();
  const HttpResponse response = Post("/v1/chat/completions",
                                     R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("roles must alternate"));
}

TEST_F(HttpApiTest, B25B26B28MaxTokensAndContext) {
  Workers(std::string(80, 'x'));
  for (const char* bad : {"-1", "0", "1.5", "\"5\"", "2147483648", "9223372036854775808", "100000000", "1e300"}) {
    const HttpResponse response = Post("/v1/completions", absl::StrCat(R"({"prompt":"abc","max_tokens":)", bad, "}"));
    EXPECT_EQ(response.status, 400) << bad << response.body;
    EXPECT_EQ(Parse(response.body)["error"]["param"], "max_tokens") << bad;
  }
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","max_tokens":1e1})").status, 200);
  const std::string prompt(54, 'a');
  const auto body = Parse(Post("/v1/completions", absl::StrCat(R"({"prompt":")", prompt, R"(","ignore_eos":true})")).body);
  EXPECT_EQ(body["usage"]["completion_tokens"], 10);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(Post("/v1/completions", absl::StrCat(R"({"prompt":")", prompt, R"(","max_tokens":10})")).status, 200);
  EXPECT_EQ(Post("/v1/completions", absl::StrCat(R"({"prompt":")", prompt, R"(","max_tokens":11})")).status, 400);
}

TEST_F(HttpApiTest, PriorityIsBounded) {
  Workers();
  for (const char* bad : {"-2147483648", "1000001", "1.5"}) {
    const HttpResponse response = Post("/v1/completions", absl::StrCat(R"({"prompt":"abc","priority":)", bad, "}"));
    EXPECT_EQ(response.status, 400) << bad << response.body;
    EXPECT_EQ(Parse(response.body)["error"]["param"], "priority") << bad;
    EXPECT_THAT(response.body, ::testing::HasSubstr("[-1000000, 1000000]")) << bad;
  }
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","max_tokens":1,"priority":-1000000})").status, 200);
}

TEST_F(HttpApiTest, B38PromptForms) {
  Workers();
  for (const char* bad : {"\"\"", "[]", "[[]]", "[1,\"x\"]", "[1.5]", "7", "{}", "[2147483648]", "[-1]", "[300]", "[[1],\"x\"]", "null"}) {
    const HttpResponse response = Post("/v1/completions", absl::StrCat(R"({"max_tokens":1,"prompt":)", bad, "}"));
    EXPECT_EQ(response.status, 400) << bad << response.body;
  }
  for (const auto& [good, choices] : std::vector<std::pair<const char*, size_t>>{
           {"\"x\"", 1}, {"[\"x\",\"y\"]", 2}, {"[1,2]", 1}, {"[[1],[2,3]]", 2}}) {
    const HttpResponse response = Post("/v1/completions", absl::StrCat(R"({"max_tokens":1,"n":2,"prompt":)", good, "}"));
    ASSERT_EQ(response.status, 200) << good << response.body;
    const auto body = Parse(response.body);
    ASSERT_EQ(body["choices"].size(), 2 * choices) << good;
    for (size_t i = 0; i < body["choices"].size(); ++i) EXPECT_EQ(body["choices"][i]["index"], i);
  }
}

TEST_F(HttpApiTest, LogprobsAreStrictJson) {
  Workers();
  const auto chat = Parse(Post("/v1/chat/completions",
                               R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"max_tokens":2})").body);
  const auto& content = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["token"], "h");
  EXPECT_EQ(content[0]["bytes"], Parse("[104]"));
  const auto text = Parse(Post("/v1/completions", R"({"prompt":"x","logprobs":0,"max_tokens":2})").body);
  EXPECT_EQ(text["choices"][0]["logprobs"]["tokens"], Parse(R"(["h","e"])"));
  EXPECT_EQ(text["choices"][0]["logprobs"]["text_offset"], Parse("[0,1]"));
}

TEST_F(HttpApiTest, ErrorsHaveTheirStatus) {
  const HttpResponse none = Post("/v1/completions", R"({"prompt":"abc"})");
  EXPECT_EQ(none.status, 503);
  EXPECT_EQ(FindHeader(none.headers, "retry-after").value_or(""), "1");
  EXPECT_EQ(Get("/ready").status, 503);
  EXPECT_EQ(Get("/health").status, 200);
  Workers();
  EXPECT_EQ(Get("/ready").status, 200);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","model":"other"})").status, 404);
  EXPECT_EQ(Post("/v1/completions", "{").status, 400);
  EXPECT_EQ(Post("/v1/completions", "[]").status, 400);
  EXPECT_EQ(Post("/v1/completions", "{\"prompt\":\"\xff\"}").status, 400);
  EXPECT_EQ(Post("/v1/nothing", "{}").status, 404);
  EXPECT_EQ(Get("/v1/completions").status, 405);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","response_format":{"type":"json"}})").status, 400);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","surprise":1,"other":{}})").status, 200);
  EXPECT_EQ(router_->core()->metrics.unknown_fields->value(), 2u);
}

TEST_F(HttpApiTest, A37DeathInAStreamIsAnErrorEventNotAnEnd) {
  Workers("hello", {.die_after_tokens = 2});
  const HttpResponse response = Post("/v1/completions", R"({"prompt":"abc","stream":true})");
  EXPECT_EQ(response.status, 200);
  const auto events = Events(response.body);
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(Parse(events.back()).contains("error")) << response.body;
  EXPECT_THAT(response.body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(response.body, Not(HasSubstr("\"length\"")));
}

TEST_F(HttpApiTest, ModelsTokenizeDetokenize) {
  Workers();
  const auto models = Parse(Get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "stub");
  EXPECT_EQ(models["data"][0]["max_model_len"], 64);
  EXPECT_EQ(Get("/v1/models/stub").status, 200);
  EXPECT_EQ(Get("/v1/models/other").status, 404);
  EXPECT_EQ(Parse(Post("/tokenize", R"({"prompt":"ab"})").body)["tokens"], Parse("[97,98]"));
  EXPECT_EQ(Parse(Post("/detokenize", R"({"tokens":[97,98]})").body)["prompt"], "ab");
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[257]})").status, 400);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("baton_requests{state=\"running\"}"));
}

TEST_F(HttpApiTest, ClientThatGoesAwayCancelsAlsoWithoutAStream) {
  Workers("hello", {.stall_after_tokens = 2});
  for (const char* stream : {"true", "false"}) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(router_->http_address().substr(router_->http_address().rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const std::string body = absl::StrCat(R"({"prompt":"abc","stream":)", stream, "}");
    const std::string request = absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
    ASSERT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    ASSERT_TRUE(decode_->WaitForTokensSent(std::string(stream) == "true" ? 2 : 4));
    close(fd);
    EXPECT_TRUE(decode_->WaitForStops(std::string(stream) == "true" ? 1 : 2));
    EXPECT_TRUE(decode_->WaitForOpenCalls(0));
    EXPECT_TRUE(Idle());
  }
}

}  // namespace
}  // namespace baton::testing
