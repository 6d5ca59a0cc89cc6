// SPDX-License-Identifier: Apache-2.0
// What a client reads, whichever way it asks: a stream says what the whole answer says, errors are JSON whatever was sent, and
// requests that share a name do not share anything else.
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/thread.h"
#include "router/openai_response.h"
#include "tests/unit/http/raw_client.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RouterAnswersTest : public ServiceTest {
 protected:
  StubWorker* Workers(const StubScript& script) {
    AddWorker("p-1", internal::PREFILL);
    return AddWorker("d-1", internal::DECODE, script);
  }
  static nlohmann::json Parse(const std::string& text) {
    auto json = ParseJson(text);  // Strict, UTF-8 included.
    EXPECT_TRUE(json.ok()) << json.status() << ": " << text;
    return json.ok() ? *json : nlohmann::json();
  }
  uint16_t port() const {
    const std::string address = router_->http_address();
    return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
};

// What the events of a stream add up to, in the shape of an answer in one piece.
struct Streamed {
  std::vector<std::string> texts, finish_reasons;
  nlohmann::json usage;
  int num_done = 0;
};
Streamed ReadStream(const std::string& body, size_t num_choices) {
  Streamed all{.texts = std::vector<std::string>(num_choices), .finish_reasons = std::vector<std::string>(num_choices)};
  for (absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    EXPECT_THAT(std::string(event), StartsWith("data: "));
    event.remove_prefix(6);
    if (event == "[DONE]") {
      ++all.num_done;
      continue;
    }
    EXPECT_EQ(all.num_done, 0) << "behind the end: " << event;
    const auto json = ParseJson(event);
    EXPECT_TRUE(json.ok()) << event;
    if (!json.ok()) continue;
    if (json->contains("usage") && !(*json)["usage"].is_null()) all.usage = (*json)["usage"];
    for (const auto& choice : (*json)["choices"]) {
      const size_t index = choice["index"];
      const auto& said = choice.contains("delta") ? choice["delta"] : choice;
      const char* const name = choice.contains("delta") ? "content" : "text";
      if (said.contains(name)) all.texts.at(index) += said[name].get<std::string>();
      if (!choice["finish_reason"].is_null()) all.finish_reasons.at(index) = choice["finish_reason"];
    }
  }
  return all;
}

// B08.
TEST_F(RouterAnswersTest, AStreamSaysWhatTheWholeAnswerSays) {
  Workers({.tokens = Bytes("one STOP two")});
  const struct {
    const char *path, *fields;
    size_t num_choices;
  } requests[] = {{"/v1/completions", R"("prompt":"abc","max_tokens":12)", 1},
                  {"/v1/completions", R"("prompt":"abc","max_tokens":12,"stop":"STOP")", 1},
                  {"/v1/completions", R"("prompt":"abc","max_tokens":12,"stop":["TOX","W"],"n":2)", 2},
                  {"/v1/completions", R"("prompt":["abc","defg"],"max_tokens":12,"echo":true)", 2},
                  {"/v1/chat/completions", R"("messages":[{"role":"user","content":"x"}],"max_tokens":12,"stop":"two")", 1}};
  for (const auto& request : requests) {
    SCOPED_TRACE(request.fields);
    const HttpResponse whole = Post(request.path, absl::StrCat("{", request.fields, "}"));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const auto answer = Parse(whole.body);
    const HttpResponse stream =
        Post(request.path, absl::StrCat("{", request.fields, R"(,"stream":true,"stream_options":{"include_usage":true}})"));
    ASSERT_EQ(stream.status, 200) << stream.body;
    const Streamed streamed = ReadStream(stream.body, request.num_choices);
    EXPECT_EQ(streamed.num_done, 1);
    EXPECT_EQ(streamed.usage, answer["usage"]);
    ASSERT_EQ(answer["choices"].size(), request.num_choices);
    for (size_t i = 0; i < request.num_choices; ++i) {
      const auto& choice = answer["choices"][i];
      EXPECT_EQ(streamed.texts[i], choice.contains("text") ? choice["text"] : choice["message"]["content"]);
      EXPECT_EQ(streamed.finish_reasons[i], choice["finish_reason"]);
    }
  }
}

// B11. One connection for many streams: each ends once, and what follows belongs to the next.
TEST_F(RouterAnswersTest, AStreamEndsOnceAndLeavesTheConnectionToTheNext) {
  Workers({.tokens = Bytes(std::string(40, 'x'))});
  RawClient client(port());
  for (int max_tokens = 1; max_tokens <= 40; ++max_tokens) {
    const std::string body = absl::StrCat(R"({"prompt":"abc","stream":true,"max_tokens":)", max_tokens, "}");
    ASSERT_TRUE(client.Send(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body)));
    const std::string answer = client.ReadUntil("\r\n0\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(answer, HasSubstr("Content-Type: text/event-stream"));
    const std::vector<std::string> parts = absl::StrSplit(answer, "data: [DONE]");
    ASSERT_EQ(parts.size(), 2u) << answer;
    EXPECT_EQ(parts[1], "\n\n\r\n0\r\n\r\n");
  }
}

// B17.
TEST_F(RouterAnswersTest, ErrorsAreJsonWhateverBytesCame) {
  Workers({.tokens = Bytes("hello")});
  for (const std::string bad : {"\xff", "\xc3\x28", "\xed\xa0\x80", "\xf0\x9f", "\x80"}) {
    for (const std::string& body :
         {absl::StrCat(R"({"prompt":"abc","model":")", bad, R"("})"), absl::StrCat(R"({"prompt":"abc",")", bad, R"(":1})"),
          absl::StrCat(R"({"prompt":")", bad, R"("})"), absl::StrCat(R"({"prompt":"abc","stop":[")", bad, R"("]})"), bad}) {
      const HttpResponse response = Post("/v1/completions", body);
      EXPECT_EQ(response.status, 400) << absl::CHexEscape(body);
      EXPECT_TRUE(Parse(response.body).contains("error"));
    }
    RawClient client(port());
    const std::string head = absl::StrCat("GET /", bad, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    ASSERT_TRUE(client.Send(head));
    const std::string answer = client.ReadAll();
    const size_t end = answer.find("\r\n\r\n");
    ASSERT_NE(end, std::string::npos) << absl::CHexEscape(answer);
    EXPECT_TRUE(Parse(answer.substr(end + 4)).contains("error"));
  }
}

// A23. A client's name for a request is a label: two at once under one name are two requests.
TEST_F(RouterAnswersTest, RequestsOfOneNameShareNothing) {
  StubWorker* decode = Workers({.tokens = Bytes("hello")});
  const HttpFetchRequest request = {.address = router_->http_address(),
                                    .method = "POST",
                                    .target = "/v1/completions",
                                    .headers = {{"X-Request-Id", "same"}},
                                    .body = R"({"prompt":"abc","max_tokens":5,"request_id":"same"})"};
  constexpr int kRequests = 6;
  {
    std::vector<Thread> threads;
    for (int i = 0; i < kRequests; ++i) {
      threads.emplace_back("client", [&] {
        const auto response = HttpFetch(request);
        ASSERT_TRUE(response.ok()) << response.status();
        EXPECT_EQ(response->status, 200) << response->body;
        EXPECT_EQ(Parse(response->body)["choices"][0]["text"], "hello");
        EXPECT_EQ(FindHeader(response->headers, "x-request-id").value_or(""), "same");
      });
    }
  }
  std::set<std::string> ids;
  std::set<uint64_t> transfers;
  for (const auto& start : decode->starts()) {
    ids.insert(start.request_id());
    transfers.insert(start.transfer().stream());
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kRequests));
  EXPECT_EQ(transfers.size(), static_cast<size_t>(kRequests));
  EXPECT_TRUE(Idle());
}

// D19.
TEST_F(RouterAnswersTest, AfterAnOverloadServiceIsAsBefore) {
  RouterOptions options;
  options.core.admission.max_queue = 2;
  StartRouter(options);
  StubWorker* decode = Workers({.tokens = Bytes("hello"), .stall_after_tokens = 1});
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 10; ++i) {  // 8 slots and the queue.
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), Text("abc")));
  }
  ASSERT_TRUE(decode->WaitForTokensSent(8));
  ASSERT_TRUE(WaitUntil([&] { return router_->core()->dispatcher.num_waiting() == 2; }));
  for (int i = 0; i < 20; ++i) {
    const Answer answer = Generate(Text("abc"));
    EXPECT_EQ(answer.status.error_code(), grpc::RESOURCE_EXHAUSTED) << answer.status.error_message();
    EXPECT_FALSE(answer.retry_after.empty());
  }
  decode->SetScript({.tokens = Bytes("hello")});
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) reader->Finish();
  EXPECT_TRUE(Idle());
  EXPECT_TRUE(decode->WaitForOpenCalls(0));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Generate(Text("abc")).text, "hello") << i;
}

// B35. JSON has no infinity.
TEST(OpenAiResponseTest, ATokenThatCannotComeHasAFiniteLogprob) {
  for (const bool chat : {false, true}) {
    const FakeTokenizer tokenizer;
    OpenAiRequest request{.chat = chat};
    request.requests.resize(1);
    request.echo = {""};
    request.num_choices = 1;
    OpenAiResponse response(request, &tokenizer, "id", "m", 1);
    v1::GenerateResponse part;
    v1::ChoiceDelta* delta = part.add_deltas();
    delta->set_text("a");
    delta->add_token_ids('a');
    delta->set_finish_reason("length");
    v1::PositionLogprobs* position = delta->add_logprobs();
    position->set_token_id('a');
    position->set_token_bytes("a");
    position->set_logprob(-std::numeric_limits<float>::infinity());
    v1::TokenLogprob* top = position->add_top();
    top->set_token_id('b');
    top->set_token_bytes("b");
    top->set_logprob(std::nanf(""));
    response.Add(0, part);
    const auto body = ParseJson(response.Whole());
    ASSERT_TRUE(body.ok()) << body.status();
    const auto& logprobs = (*body)["choices"][0]["logprobs"];
    if (chat) {
      EXPECT_EQ(logprobs["content"][0]["logprob"], -9999.0);
      EXPECT_EQ(logprobs["content"][0]["top_logprobs"][0]["logprob"], -9999.0);
    } else {
      EXPECT_EQ(logprobs["token_logprobs"][0], -9999.0);
      EXPECT_EQ(logprobs["top_logprobs"][0]["b"], -9999.0);
    }
  }
}

}  // namespace
}  // namespace baton::testing
