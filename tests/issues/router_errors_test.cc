// SPDX-License-Identifier: Apache-2.0
// What a client is told: the same thing in both APIs, in the shape that OpenAI's clients read, with value, bound and field.
#include <fstream>
#include <future>
#include <set>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "baton/internal/registry.grpc.pb.h"
#include "common/text/no_tokenizer.h"
#include "router/api_keys.h"
#include "router/prepared_request.h"
#include "tests/support/temp_files.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

class RouterErrorsTest : public ServiceTest {
 protected:
  void Workers(int context = 64) {
    for (const auto& [id, role] : {std::pair("p-1", internal::PREFILL), std::pair("d-1", internal::DECODE)}) {
      workers_.push_back(StubWorker::Start({.id = id,
                                            .role = role,
                                            .router = router_->grpc_address(),
                                            .context_length = context,
                                            .script = {.tokens = Bytes("hello")}}));
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

TEST_F(RouterErrorsTest, TheLimitOfRequestsIsTheClientsAlone) {
  RouterOptions options;
  options.core.max_request_bytes = 100;
  StartRouter(options);
  Workers();  // Their identities are longer than that.
  EXPECT_EQ(Generate(Text("abc")).text, "hello");
  const Answer grpc = Generate(Text(std::string(120, 'x')));
  EXPECT_EQ(grpc.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(grpc.status.error_message(), HasSubstr("is over the limit of 100 bytes (--max-request-bytes)"));
  EXPECT_THAT(grpc.status.error_message(), HasSubstr("request of 12"));
  const HttpResponse http = Post("/v1/completions", absl::StrCat(R"({"prompt":")", std::string(120, 'x'), R"("})"));
  EXPECT_EQ(http.status, 413);
  EXPECT_EQ(Error(http)["message"], "request body of 133 bytes is over the limit of 100 bytes");
  EXPECT_EQ(Error(http)["param"], "body");
  EXPECT_EQ(Error(http)["type"], "invalid_request_error");
  EXPECT_EQ(Error(http)["code"], "request_too_large");
}

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
TEST_F(RouterErrorsTest, ObjectsOfManyMembersAreIgnoredOrRefusedAtOnce) {
  Workers();
  std::string members;
  for (int i = 0; i < 300000; ++i) absl::StrAppend(&members, ",\"m", i, "\":0");
  EXPECT_EQ(Post("/v1/completions", absl::StrCat(R"({"prompt":"abc")", members, "}")).status, 200);
  EXPECT_EQ(router_->core()->metrics.unknown_fields->value(), 300000u);
  const HttpResponse chat =
      Post("/v1/chat/completions", absl::StrCat(R"({"messages":[{"role":"user","content":"x")", members, "}]}"));
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(Error(chat)["param"], "messages[0]");
  EXPECT_EQ(Error(chat)["message"], "messages[0] has 300002 members, at most 256 are taken");
}

TEST_F(RouterErrorsTest, AHugeChatIsRefusedByItsSizeBeforeTheTemplateSeesIt) {
  Workers();
  v1::GenerateRequest request;
  for (const char* role : {"user", "user"}) {  // The template refuses this; the size comes first.
    auto* message = request.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(std::string(300, 'x'));
  }
  ServedModel model = router_->core()->model;
  model.max_token_bytes = 1;
  const ModelLimits limits{.contexts = {{.total = 64, .prompt = 64}}, .vocab_size = 300};
  const absl::Status status = CheckPromptLength(request, model, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("messages has 600 bytes, which are at least 150 tokens; the model's context is 64"));
  request.mutable_token_ids()->mutable_ids()->Resize(64, 1);
  EXPECT_THAT(std::string(CheckPromptLength(request, model, limits).message()), HasSubstr("prompt has 64 tokens"));
  request.mutable_token_ids()->mutable_ids()->Resize(63, 1);
  EXPECT_TRUE(CheckPromptLength(request, model, limits).ok());
}

TEST_F(RouterErrorsTest, RequestsBeingPreparedAreBoundedTogether) {
  RouterOptions options;
  options.core.preparation.max_bytes = 50000;
  options.core.preparation.num_threads = 1;
  StartRouter(options);
  Workers(1 << 20);
  PreparationPool& pool = router_->core()->preparation;
  std::promise<void> free;
  ASSERT_TRUE(pool.Post(1, [done = free.get_future().share()] { done.wait(); }).ok());
  grpc::ClientContext first, second;
  auto gone = stub_->Generate(&first, Text(std::string(20000, 'x')));
  auto waits = stub_->Generate(&second, Text(std::string(20000, 'x')));
  ASSERT_TRUE(WaitUntil([&] { return pool.num_waiting() == 2; }));
  const Answer refused = Generate(Text(std::string(20000, 'x')));
  EXPECT_EQ(refused.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("and the bound is 50000 bytes together (--max-preparing-bytes)"));
  EXPECT_EQ(refused.retry_after, "1000");
  const HttpResponse http = Post("/v1/completions", absl::StrCat(R"({"prompt":")", std::string(20000, 'x'), R"("})"));
  EXPECT_EQ(http.status, 429);
  EXPECT_EQ(FindHeader(http.headers, "retry-after").value_or(""), "1");
  EXPECT_THAT(Error(http)["message"].get<std::string>(), HasSubstr("request of 20013 bytes: 400"));
  EXPECT_EQ(Generate(Text("abc")).text, "hello");  // It needs no thread of theirs.
  first.TryCancel();  // What is not begun goes with its client.
  gone->Finish();
  EXPECT_TRUE(WaitUntil([&] { return pool.num_waiting() == 1 && pool.bytes_reserved() < 25000; }));
  free.set_value();
  v1::GenerateResponse response;
  EXPECT_TRUE(waits->Read(&response));
  while (waits->Read(&response)) {
  }
  EXPECT_TRUE(waits->Finish().ok());
  EXPECT_TRUE(WaitUntil([&] { return pool.bytes_reserved() == 0; }));
}

TEST_F(RouterErrorsTest, TokenizeHasABoundOfItsOwn) {
  const std::string text(8 << 20, 'x');
  for (const char* path : {"/tokenize", "/detokenize"}) {
    const HttpResponse refused = Post(path, absl::StrCat(R"({"prompt":")", text, R"("})"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(Error(refused)["code"], "request_too_large");
    EXPECT_EQ(Error(refused)["message"], absl::StrCat("request body of 8388621 bytes is over the limit of 8388608 bytes of ", path));
  }
}

TEST_F(RouterErrorsTest, AWaitToBePreparedEndsAtTheQueueTimeout) {
  RouterOptions options;
  options.core.preparation.num_threads = 1;
  options.core.flow.queue_timeout = absl::Milliseconds(20);
  StartRouter(options);
  Workers(1 << 20);
  std::promise<void> free;
  ASSERT_TRUE(router_->core()->preparation.Post(1, [done = free.get_future().share()] { done.wait(); }).ok());
  const Answer late = Generate(Text(std::string(20000, 'x')));
  free.set_value();
  EXPECT_EQ(late.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(late.status.error_message(), HasSubstr("waited 20ms for the prompt to be tokenised, which is the queue timeout"));
  EXPECT_EQ(late.retry_after, "1000");
}

TEST_F(RouterErrorsTest, WhatATemplateMakesOfAChatIsBoundedToo) {
  ServedModel model = router_->core()->model;
  model.max_token_bytes = 1;
  model.render_chat = [](const v1::ChatPrompt&) -> absl::StatusOr<std::string> { return std::string(256, 'x'); };
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages()->set_content("a");
  const ModelLimits limits{.contexts = {{.total = 64, .prompt = 64}}, .vocab_size = 300};
  EXPECT_TRUE(CheckPromptLength(request, model, limits).ok());
  EXPECT_THAT(std::string(TokenisePrompt(request, model, &limits).status().message()),
              HasSubstr("messages has 256 bytes by its template, which are at least 64 tokens; the model's context is 64"));
  EXPECT_TRUE(TokenisePrompt(request, model, nullptr).ok());
  request.mutable_chat()->set_tools_json(std::string(256, ' '));
  EXPECT_THAT(std::string(CheckPromptLength(request, model, limits).message()), HasSubstr("messages has 257 bytes, which"));
}

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
  for (const char* served : {"post /v1/completions", "post /v1/chat/completions", "post /tokenize", "post /detokenize", "get /v1/models",
                             "get /health", "get /ready", "get /metrics", "get /version", "get /openapi.json"}) {
    EXPECT_EQ(methods.count(served), 1u) << served;
  }
  const uint64_t unknown = router_->core()->metrics.unknown_fields->value();
  for (const auto& [schema, path, needed] :
       {std::tuple("CompletionRequest", "/v1/completions", R"("prompt":"abc")"),
        {"ChatRequest", "/v1/chat/completions", R"("messages":[{"role":"user","content":"a"}])"}}) {
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

class ApiKeysTest : public RouterErrorsTest {
 protected:
  static constexpr char kClient[] = "client-0123456789", kWorkerKey[] = "worker-0123456789";

  void SetUp() override {
    path_ = WriteTempFile("keys", absl::StrCat("alice ", kClient, "\nw ", kWorkerKey, " worker\n"));
    auto keys = ApiKeys::Load(path_);
    ASSERT_TRUE(keys.ok()) << keys.status();
    RouterOptions options;
    options.core.api_keys = *std::move(keys);
    StartRouter(options);
  }
  grpc::Status GetCluster(const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    v1::GetClusterResponse response;
    return stub_->GetCluster(&context, {}, &response);
  }
  // Of every method: they agree.
  grpc::StatusCode Call(const std::string& key) {
    const grpc::Status cluster = GetCluster(key);
    grpc::ClientContext second, third;
    if (!key.empty()) second.AddMetadata("authorization", "Bearer " + key);
    if (!key.empty()) third.AddMetadata("authorization", "Bearer " + key);
    v1::ListModelsResponse models;
    EXPECT_EQ(stub_->ListModels(&second, {}, &models).error_code(), cluster.error_code());
    auto reader = stub_->Generate(&third, Text("abc"));
    v1::GenerateResponse ignored;
    while (reader->Read(&ignored)) {
    }
    const grpc::StatusCode generate = reader->Finish().error_code();
    EXPECT_EQ(generate, cluster.ok() ? grpc::UNAVAILABLE : cluster.error_code());  // There are no workers.
    return cluster.error_code();
  }
  grpc::StatusCode Register(const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    auto stub = internal::Registry::NewStub(CreateChannel(router_->grpc_address()));
    auto stream = stub->Register(&context);
    internal::WorkerReport report;
    auto* identity = report.mutable_identity();
    identity->set_id("d-1");
    identity->set_incarnation(1);
    identity->set_role(internal::DECODE);
    identity->set_address("127.0.0.1:1");
    identity->set_model_fingerprint("m");
    identity->set_kv_layout("l");
    identity->set_context_length(64);
    identity->set_vocab_size(300);
    stream->Write(report);
    internal::RouterReply reply;
    const bool welcome = stream->Read(&reply);
    stream->WritesDone();
    while (stream->Read(&reply)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(welcome, status.ok()) << status.error_message();
    return status.error_code();
  }

  std::string path_;
};

TEST_F(ApiKeysTest, EveryCallOfAClientNeedsOne) {
  EXPECT_EQ(Call(""), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Call("client-0123456780"), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Call(kWorkerKey), grpc::PERMISSION_DENIED);
  EXPECT_EQ(Call(kClient), grpc::OK);
  const std::string good = absl::StrCat("Bearer ", kClient);
  for (const auto& [method, path, status] :
       {std::tuple("GET", "/v1/models", 200), {"GET", "/metrics", 200}, {"GET", "/version", 200}, {"GET", "/nowhere", 404},
        {"POST", "/tokenize", 400}, {"POST", "/v1/completions", 400}, {"POST", "/v1/chat/completions", 400}}) {
    for (const HttpHeaders& headers : {HttpHeaders(), HttpHeaders{{"Authorization", "Bearer wrong-wrong-wrong"}}}) {
      const HttpResponse refused = Fetch(method, path, headers, "{}");
      EXPECT_EQ(refused.status, 401) << path;
      EXPECT_EQ(Error(refused)["code"], "invalid_api_key") << path;
      EXPECT_EQ(FindHeader(refused.headers, "www-authenticate").value_or(""), "Bearer") << path;
      EXPECT_THAT(refused.body, ::testing::Not(HasSubstr("wrong-wrong"))) << path;
    }
    EXPECT_EQ(Fetch(method, path, {{"Authorization", absl::StrCat("Bearer ", kWorkerKey)}}, "{}").status, 403) << path;
    EXPECT_EQ(Fetch(method, path, {{"Authorization", good}}, "{}").status, status) << path;
  }
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/ready").status, 503);
}

TEST_F(ApiKeysTest, AWorkerNeedsOneOfItsOwn) {
  EXPECT_EQ(Register(""), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Register(kClient), grpc::PERMISSION_DENIED);
  EXPECT_EQ(Register(kWorkerKey), grpc::OK);
}

TEST_F(ApiKeysTest, DrainingAWorkerNeedsAnAdmin) {
  const auto drain = [&](const char* key) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", key));
    v1::DrainWorkerRequest request;
    request.set_worker("d-9");
    v1::DrainWorkerResponse response;
    return stub_->DrainWorker(&context, request, &response);
  };
  for (const char* key : {kClient, kWorkerKey}) EXPECT_EQ(drain(key).error_code(), grpc::PERMISSION_DENIED) << key;
  std::ofstream(path_, std::ios::app) << "ops admin-0123456789 admin\n";
  EXPECT_TRUE(WaitUntil([&] { return drain("admin-0123456789").error_code() == grpc::NOT_FOUND; }));
  EXPECT_EQ(drain("admin-0123456789").error_message(), "no worker d-9 is registered here; none is");
}

TEST_F(ApiKeysTest, ARevokedKeyEnds) {
  ASSERT_EQ(Call(kClient), grpc::OK);
  std::ofstream(path_, std::ios::trunc) << "bob other-0123456789\n";
  // One call at a time: the file may be read again between two.
  EXPECT_TRUE(WaitUntil([&] { return GetCluster("other-0123456789").ok(); }));
  EXPECT_EQ(Call("other-0123456789"), grpc::OK);
  EXPECT_EQ(Call(kClient), grpc::UNAUTHENTICATED);
}

}  // namespace
}  // namespace baton::testing
