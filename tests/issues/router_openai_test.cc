// SPDX-License-Identifier: Apache-2.0
// Fields that other clients and servers of OpenAI's API have: kept to or refused by name, never another answer with status 200.
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/openai_response.h"
#include "router/tool_call_reader.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RouterOpenAiTest : public ServiceTest {
 protected:
  void Workers(const std::string& text) {
    AddWorker("p-1", internal::PREFILL);
    decode_ = AddWorker("d-1", internal::DECODE, {.tokens = Bytes(text), .finish = internal::COMPLETE});
  }
  HttpResponse Chat(const std::string& more) {
    return Post("/v1/chat/completions", absl::StrCat(R"({"messages":[{"role":"user","content":"a"}])", more, "}"));
  }
  HttpResponse Complete(const std::string& more) { return Post("/v1/completions", absl::StrCat(R"({"prompt":"a")", more, "}")); }
  static nlohmann::json Parse(const std::string& text) {
    auto json = ParseJson(text);
    EXPECT_TRUE(json.ok()) << text;
    return json.ok() ? *json : nlohmann::json();
  }
  // The first choice of every event.
  static std::vector<nlohmann::json> Choices(const std::string& stream) {
    std::vector<nlohmann::json> choices;
    for (absl::string_view block : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
      if (block.substr(6) != "[DONE]") choices.push_back(Parse(std::string(block.substr(6)))["choices"][0]);
    }
    return choices;
  }
  nlohmann::json LastSchema() { return Parse(decode_->starts().back().format().json_schema()); }

  StubWorker* decode_ = nullptr;
};

constexpr char kTools[] = R"(,"tools":[{"type":"function","function":{"name":"now"}}])";

// A token that is a part of a character stands where the character begins.
TEST_F(RouterOpenAiTest, TextOffsetsCountCharacters) {
  Workers("\xC3\xA9\xE2\x82\xACx\xF0\x9F\x98\x80!");
  const auto expected = Parse("[0,0,1,1,1,2,3,3,3,3,4]");
  EXPECT_EQ(Parse(Complete(R"(,"logprobs":0)").body)["choices"][0]["logprobs"]["text_offset"], expected);
  nlohmann::json streamed = nlohmann::json::array();
  for (const auto& choice : Choices(Complete(R"(,"logprobs":0,"stream":true)").body)) {
    if (choice["logprobs"].is_null()) continue;
    for (const auto& offset : choice["logprobs"]["text_offset"]) streamed.push_back(offset);
  }
  EXPECT_EQ(streamed, expected);
}

TEST(OpenAiResponseTest, TextOffsetsOfWholeCharacters) {
  const FakeTokenizer tokenizer({"\xC3\xA9", "\xE2\x82\xAC\xE2\x82\xAC"});
  OpenAiRequest request;
  request.requests.resize(1);
  request.echo = {""};
  OpenAiResponse response(request, &tokenizer, "id", "m", 1);
  v1::GenerateResponse part;
  v1::ChoiceDelta* delta = part.add_deltas();
  for (const int32_t id : {257, 257, 258, 0xC3, 257, 257}) {  // A character that never ends is one, too.
    v1::PositionLogprobs* position = delta->add_logprobs();
    position->set_token_id(id);
    position->set_token_bytes(std::string(tokenizer.TokenBytes(id)));
  }
  response.Add(0, part);
  const auto body = ParseJson(response.Whole());
  ASSERT_TRUE(body.ok());
  EXPECT_EQ((*body)["choices"][0]["logprobs"]["text_offset"], *ParseJson("[0,1,2,4,4,6]"));
}

TEST_F(RouterOpenAiTest, WhatAResponseFormatAsksForIsContent) {
  const std::string text = R"({"name":"now","time":5})";
  multiplexes_ = false;  // Of a shared stream all tokens may come at once, and are then one piece.
  Workers(text);
  for (const char* format : {R"({"type":"json_schema","json_schema":{"name":"n","schema":{"properties":{"name":{"const":"now"}}}}})",
                             R"({"type":"json_object"})"}) {
    for (const char* choice : {"", R"(,"tool_choice":"auto")"}) {
      const std::string asked = absl::StrCat(kTools, choice, R"(,"response_format":)", format);
      const auto answer = Parse(Chat(asked).body)["choices"][0];
      EXPECT_EQ(answer["message"]["content"], text);
      EXPECT_FALSE(answer["message"].contains("tool_calls"));
      EXPECT_EQ(answer["finish_reason"], "stop");
      std::string content;
      size_t pieces = 0;
      for (const auto& event : Choices(Chat(absl::StrCat(asked, R"(,"stream":true)")).body)) {
        const std::string piece = event["delta"].value("content", "");
        content += piece;
        pieces += !piece.empty();
      }
      EXPECT_EQ(content, text);
      EXPECT_GT(pieces, 1u);  // Not held back until its end.
    }
  }
}

// Text that begins like a call is not held back to its end, but to where it can be none.
TEST(ToolCallReaderTest, WhatCannotBecomeACallAnyMoreComesAtOnce) {
  const std::pair<const char*, const char*> answers[] = {
      {R"({"a)", R"(": 1})"},                                // Another member. The quote behind its name tells.
      {R"({"name": "no)", R"(pe", "arguments": {}})"},       // No tool begins so.
      {R"({"name": "now", "arguments": )", R"([1]})"},       // Arguments are no list.
      {R"({"name": "now", "arguments": {"x": "}"}})", R"( is it)"},
      {R"({"name": )", R"(7})"},
      {R"([)", R"(1, 2])"},
      {R"([{"name": "now", "arguments": {}}, )", R"(7])"},
      {R"({)", R"(})"},
      {R"({"name" )", R"("now"})"},
      {R"({"name": "now",)", R"(})"}};
  for (const auto& [held, rest] : answers) {
    ToolCallReader reader({.mode = ToolUse::Mode::kAuto, .names = {"now", "later"}, .name = ""});
    EXPECT_EQ(reader.Push(held).content, "") << held;
    EXPECT_EQ(reader.Push(rest).content, absl::StrCat(held, rest)) << held;
    EXPECT_EQ(reader.Push(" and more").content, " and more") << held;
    // As elsewhere in a text.
    const ToolCallReader::Result marked = reader.Push(R"(<tool_call>{"name": "now"}</tool_call>)");
    ASSERT_EQ(marked.calls.size(), 1u) << held;
    EXPECT_EQ(marked.calls[0].name, "now");
    EXPECT_TRUE(reader.Finish().calls.empty());
  }
  for (const std::string& call : {std::string(R"( {"name": "now", "arguments": {"x": "\"}{", "y": [1, {}]}} )"), std::string(R"({"type":"function","name":"later","parameters":"{}"})"),
                                  std::string(R"([{"name": "now", "arguments": {}} , {"na\u006de": "later", "arguments": {}}])")}) {
    ToolCallReader reader({.mode = ToolUse::Mode::kAuto, .names = {"now", "later"}, .name = ""});
    for (const char c : call) EXPECT_EQ(reader.Push(std::string(1, c)).content, "") << call;
    EXPECT_FALSE(reader.Finish().calls.empty()) << call;
  }
}

TEST(ToolCallReaderTest, OnlyTheMembersOfACallAreACall) {
  for (const char* text : {R"({"name":"now","time":5})", R"({"name":"now"})", R"({"name":"now","arguments":{},"time":5})",
                           R"({"name":"now","arguments":{},"parameters":{}})", R"([{"name":"now","arguments":{}},{"name":"now","x":1}])",
                           R"({"name":"now","arguments":"soon"})", R"({"name":"now","arguments":"[1]"})",
                           R"({"name":"now","type":"clock","arguments":{}})"}) {
    ToolCallReader reader({.mode = ToolUse::Mode::kAuto, .names = {"now"}, .name = ""});
    std::string content = reader.Push(text).content;
    const ToolCallReader::Result rest = reader.Finish();
    EXPECT_EQ(content + rest.content, text);
    EXPECT_TRUE(rest.calls.empty()) << text;
  }
  ToolCallReader reader({.mode = ToolUse::Mode::kAuto, .names = {"now"}, .name = ""});
  reader.Push(R"({"type":"function","name":"now","parameters":{"a":1}})");
  ASSERT_EQ(reader.Finish().calls.size(), 1u);
}

TEST_F(RouterOpenAiTest, ARequiredCallKeepsTheDataOfItsSchema) {
  Workers("[]");
  const auto ask = [&](const char* parameters) {
    const HttpResponse response = Chat(absl::StrCat(R"(,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)",
                                                    parameters, "}}]"));
    EXPECT_EQ(response.status, 200) << response.body;
    return LastSchema()["$defs"]["tool0"];
  };
  for (const char* data : {R"({"properties":{"p":{"const":{"$ref":"#/x"}}}})", R"({"properties":{"p":{"enum":[{"$ref":"#/x"},1]}}})",
                           R"({"properties":{"p":{"type":"null","default":{"$ref":"#"},"examples":[{"$ref":"#/x"}]}}})"}) {
    EXPECT_EQ(ask(data), Parse(data));
  }
  // Members that are named like keywords are schemas.
  const auto moved = ask(R"({"$defs":{"enum":{"type":"null"}},"properties":{"const":{"$ref":"#/$defs/enum"},"l":{"items":{"$ref":"#/$defs/enum"}},)"
                         R"("default":{"anyOf":[{"$ref":"#/$defs/enum"}]}}})");
  EXPECT_EQ(moved["properties"]["const"]["$ref"], "#/$defs/tool0/$defs/enum");
  EXPECT_EQ(moved["properties"]["l"]["items"]["$ref"], "#/$defs/tool0/$defs/enum");
  EXPECT_EQ(moved["properties"]["default"]["anyOf"][0]["$ref"], "#/$defs/tool0/$defs/enum");
}

TEST_F(RouterOpenAiTest, ASchemaThatCannotBeUsedIsItsTools) {
  Workers("[]");
  constexpr char kBad[] = R"(,"tools":[{"type":"function","function":{"name":"good","strict":true}},{"type":"function","function":)"
                          R"({"name":"bad","strict":true,"parameters":{"properties":{"a":{"not":{}}}}}}])";
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"bad"}})"}) {
    const HttpResponse response = Chat(absl::StrCat(kBad, R"(,"tool_choice":)", choice));
    EXPECT_EQ(response.status, 400) << response.body;
    const auto error = Parse(response.body)["error"];
    EXPECT_EQ(error["param"], "tools[1].function.parameters");
    const std::string message = error["message"];
    EXPECT_THAT(message, HasSubstr("tools[1].function.parameters of bad "));
    EXPECT_THAT(message, HasSubstr(R"(#/properties/a: "not")"));
    EXPECT_THAT(message, Not(HasSubstr("tool1")));
    EXPECT_THAT(message, Not(HasSubstr("response_format")));
  }
}

TEST_F(RouterOpenAiTest, OtherSpellingsOfASchemaAreKeptTo) {
  Workers("{}");
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"null"}}})";
  for (const std::string& format :
       {absl::StrCat(R"("response_format":{"type":"json_object","schema":)", schema, "}"), absl::StrCat(R"("guided_json":)", schema),
        absl::StrCat(R"("guided_json":)", DumpJson(nlohmann::json(schema))), absl::StrCat(R"("json_schema":)", schema)}) {
    for (const HttpResponse& response : {Chat("," + format), Complete("," + format)}) {
      EXPECT_EQ(response.status, 200) << response.body;
      EXPECT_EQ(LastSchema(), Parse(schema)) << format;
    }
  }
  EXPECT_EQ(Complete(R"(,"guided_json":{},"response_format":{"type":"json_object"})").status, 400);
  EXPECT_EQ(Complete(R"(,"guided_json":"{")").status, 400);
  EXPECT_EQ(Complete(R"(,"response_format":{"type":"json_object","schema":7})").status, 400);
}

TEST_F(RouterOpenAiTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  Workers("hello");
  const std::tuple<const char*, const char*, const char*> kFields[] = {
      {"guided_choice", R"(["a","b"])", "[]"},
      {"guided_regex", R"("a+")", "null"},
      {"guided_grammar", R"("root ::= \"a\"")", "\"\""},
      {"structured_outputs", R"({"choice":["a"]})", "{}"},
      {"grammar", R"("root ::= \"a\"")", "\"\""},
      {"continue_final_message", "true", "false"},
      {"prompt_logprobs", "0", "null"},
      {"truncate_prompt_tokens", "5", "null"},
      {"chat_template", R"("{{ messages }}")", "null"},
      {"function_call", R"({"name":"f"})", R"("none")"},
      {"use_beam_search", "true", "false"},
  };
  for (const auto& [field, value, off] : kFields) {
    for (const HttpResponse& response : {Chat(absl::StrCat(",\"", field, "\":", value)), Complete(absl::StrCat(",\"", field, "\":", value))}) {
      EXPECT_EQ(response.status, 400) << field;
      EXPECT_EQ(Parse(response.body)["error"]["param"], field) << response.body;
    }
    EXPECT_EQ(Chat(absl::StrCat(",\"", field, "\":", off)).status, 200) << field;
    EXPECT_EQ(Complete(absl::StrCat(",\"", field, "\":", off)).status, 200) << field;
  }
}

TEST_F(RouterOpenAiTest, AModelsPathIsPercentDecoded) {
  change_model_ = [](ServedModel* model) { model->name = "org/Model v1"; };
  StartRouter({});
  for (const char* path : {"/v1/models/org%2FModel%20v1", "/v1/models/org/Model%20v1", "/v1/models/org%2fModel%20v1"}) {
    const HttpResponse response = Get(path);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(Parse(response.body)["id"], "org/Model v1");
  }
  EXPECT_EQ(Get("/v1/models/org%2FModel%20v").status, 404);
  EXPECT_EQ(Get("/v1/models/%zz%f").status, 404);
  EXPECT_EQ(Parse(Get("/v1/models/%ff%00").body)["error"]["code"], "model_not_found");
}

TEST_F(RouterOpenAiTest, ABodyEndsWhereItEnds) {
  Workers("hello");
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    EXPECT_EQ(Post(path, std::string(R"({"prompt":"a"})") + '\0').status, 400);
    EXPECT_EQ(Post(path, R"({"prompt":"a"})").status, 200);
  }
}

}  // namespace
}  // namespace baton::testing
