// SPDX-License-Identifier: Apache-2.0
// What a client is told: the same thing in both APIs, in the shape that OpenAI's clients read, with value, bound and field.
#include <set>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/text/no_tokenizer.h"
#include "router/prepared_request.h"
#include "tests/issues/router_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(RouterErrorsTest, CodesAreWords) {
  Workers();
  const HttpResponse path = Post("/v1/embeddings", "{}");
  EXPECT_EQ(path.status, 404);
  EXPECT_EQ(Error(path)["code"], "unknown_url");
  EXPECT_THAT(Error(path)["message"].get<std::string>(), HasSubstr("POST /v1/embeddings"));
  for (const char* model_path : {"/v1/models/other", "/v1/models/"}) EXPECT_EQ(Error(Get(model_path))["code"], "model_not_found");
  const HttpResponse model = Post("/v1/completions", R"({"prompt":"abc","model":"other"})");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(Error(model)["code"], "model_not_found");
  EXPECT_EQ(Error(model)["param"], "model");
  for (const auto& [method, target] : {std::pair("GET", "/v1/completions"), std::pair("DELETE", "/v1/models"), std::pair("PUT", "/health")}) {
    const HttpResponse wrong = Fetch(method, target);
    EXPECT_EQ(wrong.status, 405) << target;
    EXPECT_EQ(Error(wrong)["code"], "method_not_supported") << target;
    EXPECT_TRUE(FindHeader(wrong.headers, "allow").has_value()) << target;
  }
}

TEST_F(RouterErrorsTest, AMalformedRequestIdIsRefusedNotDropped) {
  Workers();
  for (const std::string bad : {"a b", "caf\xc3\xa9", "tab\there"}) {
    v1::GenerateRequest request = Text("abc");
    request.set_request_id(bad);
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::INVALID_ARGUMENT) << bad;
    EXPECT_THAT(answer.status.error_message(), HasSubstr("request_id has other characters than visible ASCII"));
    const HttpResponse http = Fetch("POST", "/v1/completions", {{"X-Request-Id", bad}}, R"({"prompt":"abc"})");
    EXPECT_EQ(http.status, 400) << bad;
    EXPECT_EQ(Error(http)["param"], "X-Request-Id");
  }
  v1::GenerateRequest request = Text("abc");
  request.set_request_id(std::string(129, 'x'));
  EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("has 129 characters, it must be 1 to 128"));
  const HttpResponse good = Fetch("POST", "/v1/completions", {{"X-Request-Id", "id-7"}}, R"({"prompt":"abc"})");
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(FindHeader(good.headers, "x-request-id").value_or(""), "id-7");
  EXPECT_EQ(Fetch("POST", "/v1/completions", {{"X-Request-Id", ""}}, R"({"prompt":"abc"})").status, 200);
}

TEST_F(RouterErrorsTest, TemperatureIsAnyFiniteNumber) {
  Workers();
  for (const double good : {0.0, 1e-320, 2.0, 1e308, std::numeric_limits<double>::max()}) {
    v1::GenerateRequest request = Text("abc");
    request.mutable_sampling()->set_temperature(good);
    EXPECT_TRUE(Generate(request).status.ok()) << good;
  }
  for (const double bad : {-0.1, -1e-320, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    v1::GenerateRequest request = Text("abc");
    request.mutable_sampling()->set_temperature(bad);
    EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("is not a finite number of at least 0")) << bad;
  }
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","temperature":1e308})").status, 200);
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","temperature":1e309})").status, 400);
}

TEST_F(RouterErrorsTest, ToolsAndToolCallsAreChecked) {
  Workers(1024);
  const std::pair<const char*, const char*> bad_tools[] = {
      {"7", "tools"},
      {"[7]", "tools[0]"},
      {R"([{"type":1,"function":{"name":"f"}}])", "tools[0].type"},
      {R"([{"type":"function","function":"f"}])", "tools[0].function"},
      {R"([{"type":"function","function":{}}])", "tools[0].function.name"},
      {R"([{"type":"function","function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters"},
      {R"([{"name":"f"},{"name":1}])", "tools[1].name"}};
  const std::string messages = R"("messages":[{"role":"user","content":"x"}],"max_tokens":1)";
  for (const auto& [tools, param] : bad_tools) {
    const HttpResponse response = Post("/v1/chat/completions", absl::StrCat("{", messages, R"(,"tools":)", tools, "}"));
    EXPECT_EQ(response.status, 400) << tools;
    EXPECT_EQ(Error(response)["param"], param) << tools;
  }
  for (const char* good : {"[]", "null", R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])"}) {
    EXPECT_EQ(Post("/v1/chat/completions", absl::StrCat("{", messages, R"(,"tools":)", good, "}")).status, 200) << good;
  }
  const std::pair<const char*, const char*> bad_calls[] = {
      {"7", "messages[0].tool_calls"},
      {"[7]", "messages[0].tool_calls[0]"},
      {"[{}]", "messages[0].tool_calls[0].function"},
      {R"([{"function":{"name":7}}])", "messages[0].tool_calls[0].function.name"},
      {R"([{"id":7,"function":{"name":"f"}}])", "messages[0].tool_calls[0].id"},
      {R"([{"function":{"name":"f","arguments":7}}])", "messages[0].tool_calls[0].function.arguments"}};
  for (const auto& [calls, param] : bad_calls) {
    const HttpResponse response = Post(
        "/v1/chat/completions", absl::StrCat(R"({"messages":[{"role":"assistant","tool_calls":)", calls, R"(}],"max_tokens":1})"));
    EXPECT_EQ(response.status, 400) << calls;
    EXPECT_EQ(Error(response)["param"], param) << calls;
  }
}

// B16. Bodies are wide as well as deep: no work that grows with the square of it.

TEST_F(RouterErrorsTest, AModelWithoutTokenizerIsServedForTokenIds) {
  change_model_ = [](ServedModel* model) {
    model->no_text = "the model has no tokenizer.json";
    model->tokenizer = std::make_shared<NoTokenizer>(model->no_text, std::vector<int64_t>{7});
    model->render_chat = nullptr;
  };
  StartRouter({});
  Workers();
  const Answer text = Generate(Text("abc"));
  EXPECT_EQ(text.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(text.status.error_message(), HasSubstr("prompt cannot be text: the model has no tokenizer.json; only prompts of token ids"));
  v1::GenerateRequest ids;
  for (const int id : {1, 2, 3}) ids.mutable_token_ids()->add_ids(id);
  ids.set_max_tokens(8);
  const Answer answer = Generate(ids);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.ids, Bytes("hello"));
  EXPECT_EQ(answer.text, "");
  ids.add_stop("x");
  EXPECT_THAT(Generate(ids).status.error_message(), HasSubstr("stop cannot be used: the model has no tokenizer.json"));
  const HttpResponse chat = Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(Error(chat)["param"], "messages");
  EXPECT_EQ(Post("/tokenize", R"({"prompt":"abc"})").status, 400);
  EXPECT_EQ(Post("/detokenize", R"({"tokens":[1]})").status, 400);
  for (const char* stream : {"false", "true"}) {
    const HttpResponse http = Post("/v1/completions", absl::StrCat(R"({"prompt":[1,2],"echo":true,"max_tokens":8,"stream":)", stream, "}"));
    EXPECT_EQ(http.status, 200) << http.body;
    EXPECT_THAT(http.body, HasSubstr(*stream == 't' ? R"("token_ids":[104)" : R"("token_ids":[104,101,108,108,111])"));
  }
}

// Every path of the document is served, and every field that it has for requests is one that is read.

TEST_F(RouterErrorsTest, TheDocumentSaysWhatIsServed) {
  Workers();
  const auto document = ParseJson(Get("/openapi.json").body);
  ASSERT_TRUE(document.ok()) << document.status();
  std::set<std::string> methods;
  for (const auto& [path, operations] : (*document)["paths"].items()) {
    const std::string target = absl::StrReplaceAll(path, {{"{model}", "stub"}});
    for (const auto& [method, operation] : operations.items()) {
      const HttpResponse response = Fetch(absl::AsciiStrToUpper(method), target, {}, method == "post" ? "{}" : "");
      EXPECT_EQ(response.status, method == "post" ? 400 : 200) << method << " " << path << response.body;
      methods.insert(method + " " + path);
    }
  }
  for (const char* served : {"post /v1/completions", "post /v1/chat/completions", "post /v1/responses", "post /tokenize", "post /detokenize", "get /v1/models",
                             "get /health", "get /ready", "get /metrics", "get /version", "get /openapi.json"}) {
    EXPECT_EQ(methods.count(served), 1u) << served;
  }
  const uint64_t unknown = router_->core()->metrics.unknown_fields->value();
  for (const auto& [schema, path, needed] :
       {std::tuple("CompletionRequest", "/v1/completions", R"("prompt":"abc")"),
        {"ChatRequest", "/v1/chat/completions", R"("messages":[{"role":"user","content":"a"}])"},
        {"ResponsesRequest", "/v1/responses", R"("input":"abc")"}}) {
    for (const auto& [field, description] : (*document)["components"]["schemas"][schema]["properties"].items()) {
      if (absl::StartsWith(needed, absl::StrCat("\"", field, "\""))) continue;
      const HttpResponse response = Post(path, absl::StrCat("{", needed, ",\"", field, "\":null}"));
      EXPECT_EQ(response.status, 200) << field << response.body;
    }
  }
  EXPECT_EQ(router_->core()->metrics.unknown_fields->value(), unknown);
}

TEST_F(RouterErrorsTest, ASilentStreamGetsComments) {
  RouterOptions options;
  options.core.flow.queue_timeout = absl::Milliseconds(200);
  for (const int keepalive_ms : {5, 0}) {
    options.core.sse_keepalive = absl::Milliseconds(keepalive_ms);
    workers_.clear();
    StartRouter(options);
    for (const auto& [id, role] : {std::pair("p-1", internal::PREFILL), std::pair("d-1", internal::DECODE)}) {
      workers_.push_back(StubWorker::Start({.id = id,
                                            .role = role,
                                            .router = router_->grpc_address(),
                                            .slots = 1,
                                            .script = {.tokens = Bytes("hello"), .stall_after_tokens = 1}}));
    }
    ASSERT_TRUE(WaitUntil([&] { return router_->core()->Ready().ok(); }));
    grpc::ClientContext context;
    auto running = stub_->Generate(&context, Text("abc"));
    ASSERT_TRUE(workers_[1]->WaitForTokensSent(1));
    const HttpResponse waits = Post("/v1/completions", R"({"prompt":"abc","stream":true})");  // Until the queue timeout.
    if (keepalive_ms == 0) {
      EXPECT_EQ(waits.status, 429);
      EXPECT_EQ(FindHeader(waits.headers, "retry-after").value_or(""), "1");
    } else {
      EXPECT_EQ(waits.status, 200);
      EXPECT_EQ(waits.body.rfind(": keep-alive\n\n", 0), 0u) << waits.body;
      EXPECT_THAT(waits.body, HasSubstr(R"("code":"overloaded")"));
      EXPECT_THAT(waits.body, ::testing::Not(HasSubstr("[DONE]")));
    }
    context.TryCancel();
    running->Finish();
  }
}

TEST_F(RouterErrorsTest, AWorkerIsToldToDrain) {
  Workers();
  const auto drain = [&](const char* worker) {
    grpc::ClientContext context;
    v1::DrainWorkerRequest request;
    request.set_worker(worker);
    v1::DrainWorkerResponse response;
    return stub_->DrainWorker(&context, request, &response);
  };
  EXPECT_TRUE(drain("d-1").ok());
  EXPECT_TRUE(workers_[1]->WaitForDrain());
  const grpc::Status unknown = drain("d-2");
  EXPECT_EQ(unknown.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "no worker d-2 is registered here; p-1, d-1");
}

}  // namespace
}  // namespace baton::testing
