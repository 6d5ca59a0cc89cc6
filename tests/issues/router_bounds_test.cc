// SPDX-License-Identifier: Apache-2.0
// What clients may send, and how much of it at once: refused by its size, before anything is made of it.
#include <future>

#include "absl/strings/str_cat.h"
#include "router/prepared_request.h"
#include "tests/issues/router_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace baton::testing
