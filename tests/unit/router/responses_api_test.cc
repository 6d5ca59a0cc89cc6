// SPDX-License-Identifier: Apache-2.0
// /v1/responses over loopback: the chat that a body is, the items of the answer, and its events.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using nlohmann::json;

class ResponsesApiTest : public ServiceTest {
 protected:
  void Workers(const std::string& text, internal::FinishReason finish = internal::COMPLETE) {
    AddWorker("p-1", internal::PREFILL);
    decode_ = AddWorker("d-1", internal::DECODE, {.tokens = Bytes(text), .finish = finish});
  }
  static json Parse(const std::string& text) {
    auto parsed = ParseJson(text);
    EXPECT_TRUE(parsed.ok()) << text;
    return parsed.ok() ? *parsed : json();
  }
  json Respond(const std::string& body) {
    const HttpResponse response = Post("/v1/responses", body);
    EXPECT_EQ(response.status, 200) << response.body;
    return Parse(response.body);
  }
  // Type and data of each event.
  std::vector<std::pair<std::string, json>> Stream(const std::string& body) {
    std::vector<std::pair<std::string, json>> events;
    for (absl::string_view block : absl::StrSplit(Post("/v1/responses", body).body, "\n\n", absl::SkipEmpty())) {
      const std::vector<std::string> lines = absl::StrSplit(block, '\n');
      EXPECT_EQ(lines.size(), 2u) << block;
      events.emplace_back(lines[0].substr(7), Parse(lines[1].substr(6)));
      EXPECT_EQ(events.back().second["type"], events.back().first);
      EXPECT_EQ(events.back().second["sequence_number"], events.size() - 1);
    }
    return events;
  }
  // The prompt that the worker got, which FakeTokenizer makes of bytes.
  std::string Prompt() {
    const auto start = decode_->starts().back();
    std::string text;
    for (int i = 0; i < start.num_prompt_tokens(); ++i) text += static_cast<char>(start.tokens(i));
    return text;
  }
  void ExpectRefused(const std::string& body, const std::string& param, const std::string& message) {
    const HttpResponse response = Post("/v1/responses", body);
    EXPECT_EQ(response.status, 400) << body;
    const json error = Parse(response.body)["error"];
    EXPECT_EQ(error["param"], param) << response.body;
    EXPECT_THAT(error["message"].get<std::string>(), ::testing::StartsWith(param));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
  }
  StubWorker* decode_ = nullptr;
};

TEST_F(ResponsesApiTest, AMessage) {
  Workers("hello");
  const json answer = Respond(R"({"model":"stub","instructions":"be brief","input":"hi","temperature":0.5,"metadata":{"a":"b"}})");
  EXPECT_EQ(Prompt(), "system:be brief\nuser:hi\n");
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_TRUE(answer["incomplete_details"].is_null());
  EXPECT_TRUE(answer["error"].is_null());
  ASSERT_EQ(answer["output"].size(), 1u);
  EXPECT_EQ(answer["output"][0]["type"], "message");
  EXPECT_EQ(answer["output"][0]["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["type"], "output_text");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(answer["usage"]["input_tokens"], 24);
  EXPECT_EQ(answer["usage"]["output_tokens"], 5);
  EXPECT_EQ(answer["usage"]["total_tokens"], 29);
  EXPECT_EQ(answer["usage"]["input_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(answer["instructions"], "be brief");
  EXPECT_EQ(answer["temperature"], 0.5);
  EXPECT_EQ(answer["metadata"]["a"], "b");
  EXPECT_EQ(answer["store"], false);
  EXPECT_EQ(answer["timeline"]["decode_worker"], "d-1");
}

TEST_F(ResponsesApiTest, ALimitLeavesTheAnswerIncomplete) {
  Workers("hello");
  const json answer = Respond(R"({"input":"hi","max_output_tokens":2})");
  EXPECT_EQ(answer["status"], "incomplete");
  EXPECT_EQ(answer["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(answer["output"][0]["status"], "incomplete");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "he");
  EXPECT_EQ(answer["max_output_tokens"], 2);
}

TEST_F(ResponsesApiTest, NothingIsAMessageToo) {
  AddWorker("p-1", internal::PREFILL);
  AddWorker("d-1", internal::DECODE, {.tokens = {FakeTokenizer::kEnd}, .finish = internal::STOP});
  const json answer = Respond(R"({"input":"hi"})");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "");
}

TEST_F(ResponsesApiTest, ItemsAreTheTurnsOfAChat) {
  Workers("ok");
  Respond(R"({"input":[
    {"role":"user","content":[{"type":"input_text","text":"what time"},{"type":"input_text","text":"is it"}]},
    {"type":"reasoning","summary":[]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"let me see","annotations":[]}]},
    {"type":"function_call","call_id":"c1","name":"now","arguments":"{}"},
    {"type":"function_call_output","call_id":"c1","output":"noon"}],
    "tools":[{"type":"function","name":"now","parameters":{"type":"object"},"strict":null}]})");
  EXPECT_EQ(Prompt(), "user:what time\nis it\nassistant:let me see\ntool:noon\n");
}

TEST_F(ResponsesApiTest, EventsAddItemsLetThemGrowAndEndThem) {
  Workers("hello");
  const auto events = Stream(R"({"input":"hi","stream":true})");
  std::vector<std::string> types;
  std::string text;
  for (const auto& [type, data] : events) {
    if (types.empty() || types.back() != type) types.push_back(type);
    if (type == "response.output_text.delta") {
      text += data["delta"].get<std::string>();
      EXPECT_EQ(data["output_index"], 0);
      EXPECT_EQ(data["content_index"], 0);
    }
  }
  EXPECT_EQ(text, "hello");
  EXPECT_THAT(types, ElementsAre("response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                                 "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
                                 "response.completed"));
  EXPECT_EQ(events.front().second["response"]["status"], "in_progress");
  EXPECT_TRUE(events.front().second["response"]["output"].empty());
  const json& last = events.back().second["response"];
  EXPECT_EQ(last["status"], "completed");
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(last["output"][0]["id"], events[2].second["item"]["id"]);
  EXPECT_EQ(last["usage"]["output_tokens"], 5);
}

TEST_F(ResponsesApiTest, CallsAreItems) {
  Workers(R"(a<tool_call>{"name":"t","arguments":{"z":1}}</tool_call>)");
  const std::string body = R"("input":"","tools":[{"type":"function","name":"t","parameters":{"type":"object"}}])";
  const json answer = Respond(absl::StrCat("{", body, "}"));
  ASSERT_EQ(answer["output"].size(), 2u) << answer;
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["type"], "message");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "a");
  EXPECT_EQ(answer["output"][1]["type"], "function_call");
  EXPECT_EQ(answer["output"][1]["name"], "t");
  EXPECT_EQ(Parse(answer["output"][1]["arguments"])["z"], 1);
  EXPECT_THAT(answer["output"][1]["call_id"].get<std::string>(), ::testing::StartsWith("call_"));
  std::vector<std::string> done;
  for (const auto& [type, data] : Stream(absl::StrCat("{\"stream\":true,", body, "}"))) {
    if (type == "response.output_item.done") done.push_back(data["item"]["type"]);
    if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(Parse(data["arguments"])["z"], 1);
    }
  }
  EXPECT_THAT(done, ElementsAre("message", "function_call"));
}

TEST_F(ResponsesApiTest, TwoCallsAreTwoItems) {
  Workers(R"([{"name":"t","arguments":{}},{"name":"t","arguments":{}}])");
  const json answer = Respond(R"({"input":"","tools":[{"type":"function","name":"t"}]})");
  ASSERT_EQ(answer["output"].size(), 2u) << answer;
  EXPECT_EQ(answer["output"][1]["type"], "function_call");
  EXPECT_NE(answer["output"][0]["call_id"], answer["output"][1]["call_id"]);
}

TEST_F(ResponsesApiTest, ANamedCallIsOneItem) {
  Workers(R"({"zone":"UTC"})");
  const std::string body = R"("input":"hi","tools":[{"type":"function","name":"now","parameters":{"type":"object"}}],"tool_choice":{"type":"function","name":"now"})";
  const json answer = Respond(absl::StrCat("{", body, "}"));
  ASSERT_EQ(answer["output"].size(), 1u) << answer;
  EXPECT_EQ(answer["output"][0]["arguments"], R"({"zone":"UTC"})");
  EXPECT_EQ(Parse(decode_->starts().back().format().json_schema())["type"], "object");
  const auto events = Stream(absl::StrCat("{\"stream\":true,", body, "}"));
  EXPECT_EQ(events.back().second["response"]["output"].size(), 1u);
  EXPECT_EQ(events.back().second["response"]["output"][0]["arguments"], R"({"zone":"UTC"})");
}

TEST_F(ResponsesApiTest, TextFormatIsTheAnswersFormat) {
  Workers(R"({"a":1})");
  const json answer = Respond(R"({"input":"hi","text":{"format":{"type":"json_schema","name":"n","schema":{"properties":{"a":{"type":"integer"}}}}}})");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], R"({"a":1})");
  EXPECT_EQ(Parse(decode_->starts().back().format().json_schema())["properties"]["a"]["type"], "integer");
  EXPECT_EQ(answer["text"]["format"]["name"], "n");
  Respond(R"({"input":"hi","text":{"format":{"type":"json_object"}}})");
  EXPECT_TRUE(decode_->starts().back().format().json_object());
  Respond(R"({"input":"hi","text":{"format":{"type":"text"}}})");
  EXPECT_FALSE(decode_->starts().back().has_format());
}

TEST_F(ResponsesApiTest, LogprobsWhereTheyAreIncluded) {
  Workers("hi");
  const json answer = Respond(R"({"input":"a","include":["message.output_text.logprobs"]})");
  ASSERT_EQ(answer["output"][0]["content"][0]["logprobs"].size(), 2u);
  EXPECT_EQ(answer["output"][0]["content"][0]["logprobs"][0]["token"], "h");
  EXPECT_EQ(answer["output"][0]["content"][0]["logprobs"][0]["logprob"], -0.5);
  EXPECT_TRUE(Respond(R"({"input":"a"})")["output"][0]["content"][0]["logprobs"].empty());
}

TEST_F(ResponsesApiTest, WhatIsWrongHasItsNameHere) {
  Workers("hi");
  ExpectRefused(R"({"model":"stub"})", "input", "is missing");
  ExpectRefused(R"({"input":[]})", "input", "at least one item");
  ExpectRefused(R"({"input":7})", "input", "the number 7");
  ExpectRefused(R"({"instructions":"x","input":[{"role":"user","content":"a"},{"role":"nobody","content":"a"}]})", "input[1].role", "is not one of");
  ExpectRefused(R"({"instructions":"x","input":[{"role":"user"}]})", "input[0].content", "is missing");
  ExpectRefused(R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})", "input[0].content[0]", "is no text");
  ExpectRefused(R"({"input":[{"type":"web_search_call"}]})", "input[0].type", "is not supported");
  ExpectRefused(R"({"input":"a","max_output_tokens":0})", "max_output_tokens", "0");
  ExpectRefused(R"({"input":"a","previous_response_id":"resp_1"})", "previous_response_id", "are not kept");
  ExpectRefused(R"({"input":"a","background":true})", "background", "are not kept");
  ExpectRefused(R"({"input":"a","truncation":"auto"})", "truncation", "shorten");
  ExpectRefused(R"({"input":"a","n":2})", "n", "is one");
  ExpectRefused(R"({"input":"a","tools":[{"type":"web_search"}]})", "tools[0].type", "only functions");
  ExpectRefused(R"({"input":"a","tools":[{"type":"function"}]})", "tools[0].name", "is missing");
  ExpectRefused(R"({"input":"a","text":{"format":{"type":"yaml"}}})", "text.format.type", "is not one of");
  ExpectRefused(R"({"input":"a","temperature":"hot"})", "temperature", "a string");
  // Found when the template is rendered.
  const HttpResponse rendered = Post("/v1/responses", R"({"input":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})");
  EXPECT_EQ(Parse(rendered.body)["error"]["param"], "input") << rendered.body;
  EXPECT_EQ(Post("/v1/responses", R"({"model":"other","input":"a"})").status, 404);
}

}  // namespace
}  // namespace baton::testing
