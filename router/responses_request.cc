// SPDX-License-Identifier: Apache-2.0
#include "router/responses_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "router/json_fields.h"
#include "router/status_details.h"

namespace baton {
namespace {

// Of a chat's body, what the fields here became, and how its messages are called here.
struct Chat {
  Json body = Json::object();
  std::vector<std::string> names;
  void Add(Json message, std::string name) {
    body["messages"].push_back(std::move(message));
    names.push_back(std::move(name));
  }
};

bool Is(const Json& object, const char* member, absl::string_view value) {
  const auto found = object.find(member);
  return found != object.end() && found->is_string() && found->get_ref<const std::string&>() == value;
}

// Its absence, and null, are null.
Json Member(const Json& object, const char* member) {
  const auto found = object.find(member);
  return found == object.end() ? Json() : *found;
}

// Content as a chat has it. What is wrong with it the chat's reader says.
absl::StatusOr<Json> ReadContent(const std::string& param, const Json& content) {
  if (!content.is_array()) return content;
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const bool text = part.is_object() && (Is(part, "type", "input_text") || Is(part, "type", "output_text") || Is(part, "type", "text"));
    const bool refusal = part.is_object() && Is(part, "type", "refusal");
    if (!text && !refusal) return InvalidField(absl::StrCat(param, "[", i, "]"), "is no text: only input_text and output_text are supported");
    parts.push_back(Json{{"type", "text"}, {"text", Member(part, refusal ? "refusal" : "text")}});
  }
  return parts;
}

absl::Status ReadItem(const std::string& param, const Json& item, Chat* chat) {
  if (!item.is_object()) return InvalidField(param, absl::StrCat("is ", DescribeJson(item), ", should be an object"));
  if (Is(item, "type", "function_call")) {
    Json call{{"id", Member(item, "call_id")}, {"type", "function"}, {"function", {{"name", Member(item, "name")}, {"arguments", Member(item, "arguments")}}}};
    Json* const last = chat->body["messages"].empty() ? nullptr : &chat->body["messages"].back();
    if (last != nullptr && Is(*last, "role", "assistant")) {  // One turn: what was said, and its calls.
      (*last)["tool_calls"].push_back(std::move(call));
    } else {
      chat->Add(Json{{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({std::move(call)})}}, param);
    }
    return absl::OkStatus();
  }
  if (Is(item, "type", "function_call_output")) {
    BATON_ASSIGN_OR_RETURN(Json output, ReadContent(absl::StrCat(param, ".output"), Member(item, "output")));
    chat->Add(Json{{"role", "tool"}, {"tool_call_id", Member(item, "call_id")}, {"content", std::move(output)}}, param);
    return absl::OkStatus();
  }
  if (Is(item, "type", "reasoning")) return absl::OkStatus();  // Of another model: not for this one's eyes.
  const Json type = Member(item, "type");
  if (!type.is_null() && type != Json("message")) {
    return InvalidField(absl::StrCat(param, ".type"), "is not supported: message, function_call, function_call_output and reasoning are");
  }
  BATON_ASSIGN_OR_RETURN(Json content, ReadContent(absl::StrCat(param, ".content"), Member(item, "content")));
  chat->Add(Json{{"role", Member(item, "role")}, {"content", std::move(content)}}, param);
  return absl::OkStatus();
}

absl::Status ReadInput(const Json& body, Chat* chat) {
  chat->body["messages"] = Json::array();
  const Json instructions = Member(body, "instructions");
  if (instructions.is_string()) {
    chat->Add(Json{{"role", "system"}, {"content", instructions}}, "instructions");
  } else if (!instructions.is_null()) {
    return InvalidField("instructions", absl::StrCat("is ", DescribeJson(instructions), ", should be a string"));
  }
  const Json input = Member(body, "input");
  if (input.is_null()) return InvalidField("input", "is missing");
  if (input.is_string()) {
    chat->Add(Json{{"role", "user"}, {"content", input}}, "input");
    return absl::OkStatus();
  }
  if (!input.is_array()) return InvalidField("input", absl::StrCat("is ", DescribeJson(input), ", should be a string or an array"));
  if (input.empty()) return InvalidField("input", "is empty: at least one item is needed");
  for (size_t i = 0; i < input.size(); ++i) BATON_RETURN_IF_ERROR(ReadItem(absl::StrCat("input[", i, "]"), input[i], chat));
  return absl::OkStatus();
}

// A function as a chat has it: under a name of its own.
Json Nested(const Json& flat) {
  Json function = Json::object();
  for (const auto& [key, value] : flat.items()) {
    if (key != "type" && !value.is_null()) function[key] = value;
  }
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

absl::Status ReadTools(const Json& body, Chat* chat) {
  const Json tools = Member(body, "tools"), choice = Member(body, "tool_choice");
  if (!tools.is_null() && !tools.is_array()) return InvalidField("tools", absl::StrCat("is ", DescribeJson(tools), ", should be an array"));
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object() || !Is(tools[i], "type", "function")) {
      return InvalidField(absl::StrCat("tools[", i, "].type"), "is not supported: only functions are");
    }
    chat->body["tools"].push_back(Nested(tools[i]));
  }
  if (!choice.is_null()) chat->body["tool_choice"] = choice.is_object() && Is(choice, "type", "function") ? Nested(choice) : choice;
  return absl::OkStatus();
}

absl::Status ReadText(const Json& body, Chat* chat) {
  const Json text = Member(body, "text");
  if (text.is_null()) return absl::OkStatus();
  if (!text.is_object()) return InvalidField("text", absl::StrCat("is ", DescribeJson(text), ", should be an object"));
  const Json format = Member(text, "format");
  if (format.is_null()) return absl::OkStatus();
  if (!format.is_object() || !Is(format, "type", "json_schema")) {
    chat->body["response_format"] = format;
    return absl::OkStatus();
  }
  Json schema = Json::object();
  for (const auto& [key, value] : format.items()) {
    if (key != "type") schema[key] = value;
  }
  chat->body["response_format"] = Json{{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  return absl::OkStatus();
}

// Answers are not kept, so nothing can go on from one, and none can be fetched later.
absl::Status RefuseUnsupported(const Json& body) {
  constexpr absl::string_view kNotKept = "is not supported, as answers are not kept: send the whole conversation as input";
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (!Member(body, name).is_null()) return InvalidField(name, name == std::string("prompt") ? "is not supported: send its text" : kNotKept);
  }
  if (Member(body, "background") == Json(true)) return InvalidField("background", "is not supported: answers are not kept");
  if (Is(body, "truncation", "auto")) return InvalidField("truncation", "is not supported as \"auto\": shorten the input");
  const Json n = Member(body, "n");
  if (!n.is_null() && n != Json(1)) return InvalidField("n", "is not supported: an answer here is one");
  return absl::OkStatus();
}

void ReadLogprobs(const Json& body, Chat* chat) {
  bool wanted = !Member(body, "top_logprobs").is_null() && Member(body, "top_logprobs") != Json(0);
  for (const Json& name : Member(body, "include")) wanted = wanted || name == Json("message.output_text.logprobs");
  if (wanted) chat->body["logprobs"] = true;
}

// What the answer repeats of its request.
Json Repeated(const Json& body) {
  Json repeated = Json::object();
  for (const char* name : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "temperature", "text", "tool_choice", "tools", "top_p", "user"}) {
    repeated[name] = Member(body, name);
  }
  const std::pair<const char*, Json> defaults[] = {{"metadata", Json::object()}, {"parallel_tool_calls", true}, {"temperature", 1.0}, {"top_p", 1.0},
                                                   {"text", Json{{"format", {{"type", "text"}}}}}, {"tool_choice", "auto"}, {"tools", Json::array()}};
  for (const auto& [name, value] : defaults) {
    if (repeated[name].is_null()) repeated[name] = value;
  }
  return repeated;
}

}  // namespace

absl::StatusOr<OpenAiRequest> ParseResponsesRequest(absl::string_view body) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseOrderedJson(body));
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat("body is ", DescribeJson(json), ", should be an object"));
  BATON_RETURN_IF_ERROR(RefuseUnsupported(json));
  Chat chat;
  for (const auto& [key, value] : json.items()) {
    static constexpr absl::string_view kTaken[] = {"input", "instructions", "tools", "tool_choice", "text", "previous_response_id", "conversation", "prompt",
                                                   "background", "truncation", "max_output_tokens", "include", "messages", "response_format", "stream_options"};
    static constexpr absl::string_view kOfNoEffect[] = {"reasoning", "prompt_cache_key", "prompt_cache_retention", "max_tool_calls"};
    bool taken = false;
    for (const absl::string_view name : kTaken) taken = taken || key == name;
    for (const absl::string_view name : kOfNoEffect) taken = taken || key == name;
    if (!taken) chat.body[key] = value;
  }
  if (const Json most = Member(json, "max_output_tokens"); !most.is_null()) chat.body["max_completion_tokens"] = most;
  BATON_RETURN_IF_ERROR(ReadInput(json, &chat));
  BATON_RETURN_IF_ERROR(ReadTools(json, &chat));
  BATON_RETURN_IF_ERROR(ReadText(json, &chat));
  ReadLogprobs(json, &chat);
  absl::StatusOr<OpenAiRequest> parsed = ReadOpenAiRequest(chat.body, /*chat=*/true);
  if (!parsed.ok()) return InNamesOfResponses(parsed.status(), chat.names);
  parsed->responses = Repeated(json);
  parsed->message_names = std::move(chat.names);
  return parsed;
}

absl::Status InNamesOfResponses(const absl::Status& status, const std::vector<std::string>& message_names) {
  const std::optional<std::string> param = Param(status);
  if (status.ok() || !param.has_value()) return status;
  std::string name = *param;
  absl::string_view rest = *param;
  if (absl::ConsumePrefix(&rest, "messages")) {
    size_t index = 0;
    const size_t end = rest.find(']');
    const bool one = end != absl::string_view::npos && absl::SimpleAtoi(rest.substr(1, end - 1), &index) && index < message_names.size();
    // Texts are messages without members.
    const bool text = one && (message_names[index] == "input" || message_names[index] == "instructions");
    name = !one ? "input" : text ? message_names[index] : absl::StrCat(message_names[index], rest.substr(end + 1));
  } else if (*param == "max_completion_tokens" || *param == "max_tokens") {
    name = "max_output_tokens";
  } else if (absl::ConsumePrefix(&rest, "response_format")) {
    name = absl::StrCat("text.format", absl::StripPrefix(rest, ".json_schema"));
  } else if (absl::StartsWith(*param, "tools[")) {
    name = absl::StrReplaceAll(*param, {{"].function", "]"}});
  }
  absl::string_view problem = status.message();
  if (name == *param) return status;
  if (!absl::ConsumePrefix(&problem, *param)) return WithParam(status, name);  // The template's words.
  return WithParam(absl::Status(status.code(), absl::StrCat(name, problem)), name);
}

}  // namespace baton
