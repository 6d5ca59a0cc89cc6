// SPDX-License-Identifier: Apache-2.0
// echo with logprobs, and what it is in gRPC: what is known of the prompt's tokens stands before the answer's.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

class PromptLogprobsTest : public ServiceTest {
 protected:
  void SetUp() override {
    StartRouter({});
    AddWorker("p-1", internal::PREFILL);
    decode_ = AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello")});
    ASSERT_TRUE(WaitUntil([&] { return router_->core()->Ready().ok(); }));
  }
  nlohmann::json Choice(const std::string& rest) {
    const HttpResponse response = Post("/v1/completions", absl::StrCat(R"({"prompt":"abc",)", rest, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    auto json = ParseJson(response.body);
    EXPECT_TRUE(json.ok());
    return json.ok() && response.status == 200 ? (*json)["choices"][0] : nlohmann::json();
  }
  StubWorker* decode_ = nullptr;
};

TEST_F(PromptLogprobsTest, StandBeforeTheAnswers) {
  const nlohmann::json choice = Choice(R"("echo":true,"logprobs":1,"max_tokens":2)");
  EXPECT_EQ(choice["text"], "abche");
  EXPECT_EQ(choice["finish_reason"], "length");
  const nlohmann::json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], nlohmann::json({"a", "b", "c", "h", "e"}));
  EXPECT_EQ(logprobs["token_logprobs"], nlohmann::json({nullptr, -1.0, -2.0, -0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], nlohmann::json({0, 1, 2, 3, 4}));
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][1], nlohmann::json({{"c", -0.5}}));
  EXPECT_EQ(logprobs["top_logprobs"][2], nlohmann::json({{"d", -1.5}}));
}

TEST_F(PromptLogprobsTest, MayBeAllThatIsWanted) {
  const HttpResponse response = Post("/v1/completions", R"({"prompt":["abc","abcdefgh"],"echo":true,"logprobs":0,"max_tokens":0})");
  ASSERT_EQ(response.status, 200) << response.body;
  const nlohmann::json body = *ParseJson(response.body);
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["logprobs"]["token_logprobs"], nlohmann::json({nullptr, -1.0, -2.0}));
  EXPECT_EQ(body["choices"][0]["logprobs"]["top_logprobs"], nlohmann::json({nullptr, nlohmann::json::object(), nlohmann::json::object()}));
  EXPECT_EQ(body["choices"][1]["text"], "abcdefgh");
  EXPECT_EQ(body["choices"][1]["logprobs"]["token_logprobs"].size(), 8u);
  EXPECT_EQ(body["choices"][1]["logprobs"]["token_logprobs"][7], -7.0);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 11);
}

TEST_F(PromptLogprobsTest, ComeWithTheFirstEventOfAStream) {
  const HttpResponse response = Post("/v1/completions", R"({"prompt":"abc","echo":true,"logprobs":0,"max_tokens":2,"stream":true})");
  EXPECT_THAT(response.body, HasSubstr(R"("text":"abch","logprobs":{"text_offset":[0,1,2,3],"token_logprobs":[null,-1.0,-2.0,-0.5])"));
  EXPECT_THAT(response.body, HasSubstr(R"("text":"e","logprobs":{"text_offset":[4],"token_logprobs":[-0.5])"));
  const HttpResponse alone = Post("/v1/completions", R"({"prompt":"abc","echo":true,"logprobs":0,"max_tokens":0,"stream":true})");
  EXPECT_THAT(alone.body, HasSubstr(R"("text":"abc","logprobs":{"text_offset":[0,1,2],"token_logprobs":[null,-1.0,-2.0])"));
  EXPECT_THAT(alone.body, HasSubstr(R"("finish_reason":"length")"));
}

TEST_F(PromptLogprobsTest, HaveAFieldOfTheirOwnInGrpc) {
  v1::GenerateRequest request = Text("abcd", 3);
  request.set_prompt_logprobs(1);
  std::vector<v1::GenerateResponse> responses;
  const Answer answer = Generate(request, [&](const Answer& so_far) { responses.push_back(so_far.last); });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "hel");
  ASSERT_EQ(responses.at(0).prompt_logprobs_size(), 4);
  EXPECT_EQ(responses[0].prompt_logprobs(0).token_id(), 'a');
  EXPECT_EQ(responses[0].prompt_logprobs(0).top_size(), 0);
  EXPECT_EQ(responses[0].prompt_logprobs(3).token_bytes(), "d");
  EXPECT_EQ(responses[0].prompt_logprobs(3).logprob(), -3.0f);
  EXPECT_EQ(responses[0].prompt_logprobs(3).top(0).token_id(), 'e');
  EXPECT_EQ(responses[0].deltas(0).logprobs_size(), 0);
  for (size_t i = 1; i < responses.size(); ++i) EXPECT_EQ(responses[i].prompt_logprobs_size(), 0);
  EXPECT_EQ(answer.last.timeline().reason(), "prompt log-probabilities");
  EXPECT_EQ(answer.last.timeline().prefill_worker(), "");
}

TEST_F(PromptLogprobsTest, WhatCannotBeIsRefused) {
  v1::GenerateRequest request = Text("abc");
  request.set_prompt_logprobs(21);
  EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("prompt_logprobs 21 is out of range [0, 20]"));
  request.set_prompt_logprobs(1);
  request.set_n(2);
  EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("n 2 is over 1, with log-probabilities of the prompt"));
  EXPECT_EQ(Post("/v1/completions", R"({"prompt":"abc","echo":true,"logprobs":1,"n":2})").status, 400);
  for (const char* without : {R"("logprobs":1)", R"("echo":true)"}) {
    EXPECT_EQ(Post("/v1/completions", absl::StrCat(R"({"prompt":"abc","max_tokens":0,)", without, "}")).status, 400) << without;
  }
  EXPECT_EQ(Generate(Text("abc", 0)).status.error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(PromptLogprobsTest, AnAnswerWithoutThemIsNone) {
  v1::GenerateRequest request = Text("abcdef");
  request.set_prompt_logprobs(1);
  decode_->SetScript({.tokens = Bytes("hello"), .lost_prompt_logprobs = 2});
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(answer.status.error_message(), "log-probabilities of 3 prompt tokens came, not of 5");
  EXPECT_EQ(answer.text, "");
}

}  // namespace
}  // namespace baton::testing
