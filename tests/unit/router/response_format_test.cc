// SPDX-License-Identifier: Apache-2.0
// response_format and tools over HTTP, with workers that say what they are told.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/tool_call_reader.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

class ResponseFormatTest : public ServiceTest {
 protected:
  void Workers(const std::string& text = "{}", StubScript script = {.finish = internal::COMPLETE}) {
    script.tokens = Bytes(text);
    AddWorker("p-1", internal::PREFILL);
    decode_ = AddWorker("d-1", internal::DECODE, script);
  }
  HttpResponse Chat(const std::string& more) {
    return Post("/v1/chat/completions", absl::StrCat(R"({"messages":[{"role":"user","content":"a"}])", more, "}"));
  }
  static nlohmann::json Parse(const std::string& text) {
    auto json = ParseJson(text);
    EXPECT_TRUE(json.ok()) << text;
    return json.ok() ? *json : nlohmann::json();
  }
  internal::DecodeStart LastStart() { return decode_->starts().back(); }
  // The deltas of a stream, and the finish reason.
  std::pair<std::vector<nlohmann::json>, std::string> Deltas(const std::string& more) {
    std::pair<std::vector<nlohmann::json>, std::string> result;
    for (absl::string_view block : absl::StrSplit(Chat(absl::StrCat(more, R"(,"stream":true)")).body, "\n\n", absl::SkipEmpty())) {
      if (block.substr(6) == "[DONE]") continue;
      const auto choice = Parse(std::string(block.substr(6)))["choices"][0];
      result.first.push_back(choice["delta"]);
      if (choice["finish_reason"].is_string()) result.second = choice["finish_reason"];
    }
    return result;
  }

  StubWorker* decode_ = nullptr;
};

constexpr char kTools[] =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"$defs":{"d":{"type":"integer"}},"type":"object",)"
    R"("properties":{"x":{"$ref":"#/$defs/d"}},"required":["x"]}}},{"type":"function","function":{"name":"g"}}])";

TEST_F(ResponseFormatTest, TravelsToTheDecodeWorker) {
  Workers();
  const HttpResponse mode = Chat(R"(,"response_format":{"type":"json_object"})");
  EXPECT_EQ(mode.status, 200) << mode.body;
  EXPECT_EQ(Parse(mode.body)["choices"][0]["message"]["content"], "{}");
  EXPECT_EQ(Parse(mode.body)["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(LastStart().format().json_object());
  const std::string schema = R"({"type":"object","properties":{"b":{"type":"null"},"a":{"type":"null"}}})";
  const auto ask = [&](const char* strict) {
    return Post("/v1/completions", absl::StrCat(R"({"prompt":"x","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)",
                                                schema, strict, "}}}"));
  };
  EXPECT_EQ(ask("").status, 200);
  EXPECT_EQ(LastStart().format().json_schema(), schema);  // In the order of its members.
  EXPECT_FALSE(LastStart().format().lenient());
  EXPECT_EQ(ask(R"(,"strict":true)").status, 200);
  EXPECT_FALSE(LastStart().format().lenient());
  EXPECT_EQ(ask(R"(,"strict":false)").status, 200);
  EXPECT_TRUE(LastStart().format().lenient());
  EXPECT_EQ(Chat(R"(,"response_format":{"type":"text"})").status, 200);
  EXPECT_FALSE(LastStart().has_format());
}

TEST_F(ResponseFormatTest, RefusalsNameTheField) {
  Workers();
  const std::tuple<const char*, const char*, const char*> kRefused[] = {
      {"7", "response_format", "is the number 7"},
      {"{}", "response_format.type", "is not one of"},
      {R"({"type":"xml"})", "response_format.type", "is not one of"},
      {R"({"type":"json_schema"})", "response_format.json_schema", "is missing"},
      {R"({"type":"json_schema","json_schema":[]})", "response_format.json_schema", "is an array"},
      {R"({"type":"json_schema","json_schema":{"name":"x"}})", "response_format.json_schema.schema", "is missing"},
      {R"({"type":"json_schema","json_schema":{"schema":"x"}})", "response_format.json_schema.schema", "is a string"},
      {R"({"type":"json_schema","json_schema":{"schema":{},"strict":1}})", "response_format.json_schema.strict", "is the number 1"},
      {R"({"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"not":{}}}}}})", "response_format", R"(#/properties/a: "not")"},
      {R"({"type":"json_schema","json_schema":{"schema":false}})", "response_format", "nothing"},
  };
  for (const auto& [format, param, reason] : kRefused) {
    const HttpResponse response = Chat(absl::StrCat(R"(,"response_format":)", format));
    EXPECT_EQ(response.status, 400) << format;
    const auto error = Parse(response.body)["error"];
    EXPECT_EQ(error["param"], param) << format;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(reason));
  }
  v1::GenerateRequest request = Text("abc");
  request.mutable_response_format()->set_json_schema("{");
  EXPECT_EQ(Generate(request).status.error_code(), grpc::INVALID_ARGUMENT);
  request.mutable_response_format()->set_json_schema("{}");
  EXPECT_TRUE(Generate(request).status.ok());
  EXPECT_EQ(Chat(R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}},"strict":false}})").status, 200);
}

// A worker of a version that does not know formats would answer anything: it is not asked.
TEST_F(ResponseFormatTest, OldWorkersAreLeft) {
  Workers("anything", {.knows_formats = false});
  EXPECT_EQ(Chat("").status, 200);
  const HttpResponse response = Chat(R"(,"response_format":{"type":"json_object"})");
  EXPECT_NE(response.status, 200);
  EXPECT_EQ(response.body.find("anything"), std::string::npos) << response.body;
  AddWorker("d-2", internal::DECODE, {.tokens = Bytes("{}"), .finish = internal::COMPLETE});
  for (int i = 0; i < 4; ++i) {
    const HttpResponse served = Chat(R"(,"response_format":{"type":"json_object"})");
    EXPECT_EQ(served.status, 200) << served.body;
    EXPECT_EQ(Parse(served.body)["choices"][0]["message"]["content"], "{}");
  }
}

TEST_F(ResponseFormatTest, ARequiredCallIsAListByItsFormat) {
  Workers(R"([{"name":"f","arguments":{"x": 1}},{"name":"g"}])");
  const auto choice = Parse(Chat(absl::StrCat(kTools, R"(,"tool_choice":"required")")).body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["type"], "function");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"x":1})");
  EXPECT_NE(choice["message"]["tool_calls"][0]["id"], choice["message"]["tool_calls"][1]["id"]);
  const auto schema = Parse(LastStart().format().json_schema());
  EXPECT_EQ(schema["$defs"]["tool0"]["properties"]["x"]["$ref"], "#/$defs/tool0/$defs/d");
  EXPECT_FALSE(schema.contains("maxItems"));
  Chat(absl::StrCat(kTools, R"(,"tool_choice":"required","parallel_tool_calls":false)"));
  EXPECT_EQ(Parse(LastStart().format().json_schema())["maxItems"], 1);

  const auto [deltas, reason] = Deltas(absl::StrCat(kTools, R"(,"tool_choice":"required")"));
  EXPECT_EQ(reason, "tool_calls");
  std::vector<std::string> names;
  for (const auto& delta : deltas) {
    if (!delta.contains("tool_calls")) continue;
    EXPECT_EQ(delta["tool_calls"][0]["index"], static_cast<int>(names.size()));
    names.push_back(delta["tool_calls"][0]["function"]["name"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"f", "g"}));
}

TEST_F(ResponseFormatTest, ANamedCallIsItsArguments) {
  Workers(R"({"x":12})");
  const std::string named = absl::StrCat(kTools, R"(,"tool_choice":{"type":"function","function":{"name":"f"}})");
  const auto choice = Parse(Chat(named).body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"x":12})");
  EXPECT_EQ(Parse(LastStart().format().json_schema())["required"][0], "x");
  const auto [deltas, reason] = Deltas(named);
  std::string arguments;
  int begun = 0;
  for (const auto& delta : deltas) {
    if (!delta.contains("tool_calls")) continue;
    begun += delta["tool_calls"][0].contains("id");
    arguments += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(arguments, R"({"x":12})");
}

TEST_F(ResponseFormatTest, CallsThatTheModelWritesAreFound) {
  Workers("Hi.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", {.finish = internal::LENGTH});
  const auto choice = Parse(Chat(kTools).body)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Hi.");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_EQ(choice["finish_reason"], "length");  // What ended the answer is not hidden.
  const auto [deltas, reason] = Deltas(kTools);
  std::string content;
  for (const auto& delta : deltas) content += delta.value("content", "");
  EXPECT_EQ(content, "Hi.");
  // Without tools the same is text.
  EXPECT_THAT(Parse(Chat("").body)["choices"][0]["message"]["content"].get<std::string>(), HasSubstr("<tool_call>"));
  EXPECT_THAT(Parse(Chat(absl::StrCat(kTools, R"(,"tool_choice":"none")")).body)["choices"][0]["message"]["content"].get<std::string>(),
              HasSubstr("<tool_call>"));
}

TEST_F(ResponseFormatTest, ToolChoicesAreChecked) {
  Workers();
  for (const char* choice : {"7", R"("always")", R"({"type":"function"})", R"({"type":"function","function":{"name":"h"}})",
                             R"("required","response_format":{"type":"json_object"})"}) {
    const HttpResponse response = Chat(absl::StrCat(kTools, R"(,"tool_choice":)", choice));
    EXPECT_EQ(response.status, 400) << choice;
    EXPECT_EQ(Parse(response.body)["error"]["param"], "tool_choice") << choice;
  }
  EXPECT_EQ(Chat(R"(,"tool_choice":"required")").status, 400);
  EXPECT_EQ(Chat(R"(,"tool_choice":"auto")").status, 200);
  EXPECT_EQ(Chat(R"(,"tool_choice":null,"tools":[])").status, 200);
}

// However the text is cut into pieces.
TEST(ToolCallReaderTest, ReadsWhateverTheCuts) {
  const struct {
    const char* text;
    const char* content;
    std::vector<std::string> calls;
  } kCases[] = {
      {"plain text", "plain text", {}},
      {"a < b <tool", "a < b <tool", {}},
      {"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>", "", {"f{}", "g{}"}},
      {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}", "", {"f{\"a\":1}"}},
      {"<tool_call>{\"name\":\"unknown\"}</tool_call>", "<tool_call>{\"name\":\"unknown\"}</tool_call>", {}},
      {"a \n<tool_call>no JSON</tool_call>", "a \n<tool_call>no JSON</tool_call>", {}},
      {"a \n<tool_call>{\"name\":\"f\"}</tool_call>", "a", {"f{}"}},
      {"<tool_call>no JSON</tool_call>!", "<tool_call>no JSON</tool_call>!", {}},
      {"{\"name\":\"f\",\"parameters\":{\"x\":[]}}", "", {"f{\"x\":[]}"}},
      {" [{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\",\"arguments\":\"{}\"}]", "", {"f{}", "g{}"}},
      {"{\"answer\":1}", "{\"answer\":1}", {}},
      {"[1, 2] is a list", "[1, 2] is a list", {}},
      {"", "", {}},
  };
  for (const auto& c : kCases) {
    for (const size_t piece : {1, 2, 3, 7, 1000}) {
      ToolCallReader reader({.mode = ToolUse::Mode::kAuto, .names = {"f", "g"}, .name = ""});
      std::string content;
      std::vector<std::string> calls;
      const auto add = [&](const ToolCallReader::Result& result) {
        content += result.content;
        for (const ToolCall& call : result.calls) calls.push_back(call.name + call.arguments);
      };
      const absl::string_view text = c.text;
      for (size_t at = 0; at < text.size(); at += piece) add(reader.Push(text.substr(at, piece)));
      add(reader.Finish());
      EXPECT_EQ(content, c.content) << c.text << " in pieces of " << piece;
      EXPECT_EQ(calls, c.calls) << c.text << " in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace baton::testing
