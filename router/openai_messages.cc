// SPDX-License-Identifier: Apache-2.0
#include "router/openai_messages.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "router/status_details.h"

namespace baton {
namespace {

absl::StatusOr<std::string> ReadContent(const std::string& param, const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return InvalidField(param, absl::StrCat("is ", DescribeJson(content), ", should be a string or an array of parts"));
  }
  if (content.empty()) return InvalidField(param, "is an empty array: at least one part is needed");
  std::vector<std::string> texts;
  for (const Json& part : content) {
    if (part.is_string()) {
      texts.push_back(part.get<std::string>());
      continue;
    }
    const bool text = part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
                      part["text"].is_string();
    if (!text) return InvalidField(param, "has a part that is not {\"type\":\"text\",\"text\":...}");
    texts.push_back(part["text"].get<std::string>());
  }
  return absl::StrJoin(texts, "\n");
}

// Of a message. What follows takes time squared in it.
constexpr size_t kMaxMembers = 256;

absl::Status CheckNumMembers(const std::string& param, const Json& object) {
  if (object.size() <= kMaxMembers) return absl::OkStatus();
  return InvalidField(param, absl::StrCat("has ", object.size(), " members, at most ", kMaxMembers, " are taken"));
}

// A member that may be absent or null, and otherwise is a text.
absl::Status CheckText(const std::string& param, const Json& object, const char* member, bool required = false) {
  const auto found = object.find(member);
  if (found == object.end() || found->is_null()) {
    return required ? InvalidField(absl::StrCat(param, ".", member), "is missing") : absl::OkStatus();
  }
  if (found->is_string()) return absl::OkStatus();
  return InvalidField(absl::StrCat(param, ".", member), absl::StrCat("is ", DescribeJson(*found), ", should be a string"));
}

absl::Status CheckObject(const std::string& param, const Json& value) {
  if (value.is_object()) return absl::OkStatus();
  return InvalidField(param, absl::StrCat("is ", DescribeJson(value), ", should be an object"));
}

// Templates walk through arguments; clients send them as text.
absl::Status ReadArguments(const std::string& param, Json* function) {
  const auto found = function->find("arguments");
  if (found == function->end() || found->is_null() || found->is_object()) return absl::OkStatus();
  if (!found->is_string()) {
    return InvalidField(param, absl::StrCat("is ", DescribeJson(*found), ", should be a string or an object"));
  }
  absl::StatusOr<Json> arguments = ParseOrderedJson(found->get_ref<const std::string&>());
  if (arguments.ok() && arguments->is_object()) *found = *std::move(arguments);
  return absl::OkStatus();
}

absl::Status ReadToolCalls(const std::string& param, Json* tool_calls) {
  if (!tool_calls->is_array()) {
    return InvalidField(param, absl::StrCat("is ", DescribeJson(*tool_calls), ", should be an array"));
  }
  for (size_t i = 0; i < tool_calls->size(); ++i) {
    Json& call = (*tool_calls)[i];
    const std::string name = absl::StrCat(param, "[", i, "]");
    BATON_RETURN_IF_ERROR(CheckObject(name, call));
    BATON_RETURN_IF_ERROR(CheckText(name, call, "id"));
    BATON_RETURN_IF_ERROR(CheckText(name, call, "type"));
    const auto function = call.find("function");
    if (function == call.end()) return InvalidField(absl::StrCat(name, ".function"), "is missing");
    BATON_RETURN_IF_ERROR(CheckObject(absl::StrCat(name, ".function"), *function));
    BATON_RETURN_IF_ERROR(CheckText(absl::StrCat(name, ".function"), *function, "name", /*required=*/true));
    BATON_RETURN_IF_ERROR(ReadArguments(absl::StrCat(name, ".function.arguments"), &*function));
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const std::string& param, const Json& json, v1::ChatMessage* message) {
  if (!json.is_object()) return InvalidField(param, absl::StrCat("is ", DescribeJson(json), ", should be an object"));
  BATON_RETURN_IF_ERROR(CheckNumMembers(param, json));
  auto role = json.find("role");
  if (role == json.end() || !role->is_string()) return InvalidField(absl::StrCat(param, ".role"), "is missing");
  if (!IsKnownRole(role->get<std::string>())) {
    return InvalidField(absl::StrCat(param, ".role"), kKnownRoles);
  }
  message->set_role(role->get<std::string>());
  auto content = json.find("content");
  if (content != json.end() && !content->is_null()) {
    BATON_ASSIGN_OR_RETURN(*message->mutable_content(), ReadContent(absl::StrCat(param, ".content"), *content));
  } else if (message->role() == "assistant") {
    message->set_content("");
  } else {
    return InvalidField(absl::StrCat(param, ".content"), "is missing");
  }
  Json extra = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (key != "role" && key != "content") extra[key] = value;
  }
  BATON_RETURN_IF_ERROR(NormaliseExtra(param, &extra));
  if (!extra.empty()) message->set_extra_json(DumpJson(extra));
  return absl::OkStatus();
}

}  // namespace

bool IsKnownRole(absl::string_view role) {
  for (const char* known : {"system", "developer", "user", "assistant", "tool", "function"}) {
    if (role == known) return true;
  }
  return false;
}

absl::Status NormaliseExtra(const std::string& param, Json* extra) {
  BATON_RETURN_IF_ERROR(CheckNumMembers(param, *extra));
  for (const char* text : {"name", "tool_call_id", "refusal"}) BATON_RETURN_IF_ERROR(CheckText(param, *extra, text));
  Json kept = Json::object();
  for (auto& [key, value] : extra->items()) {
    if (value.is_null()) continue;
    if (key == "tool_calls") {
      BATON_RETURN_IF_ERROR(ReadToolCalls(absl::StrCat(param, ".tool_calls"), &value));
      if (value.empty()) continue;
    }
    kept[key] = std::move(value);
  }
  *extra = std::move(kept);
  return absl::OkStatus();
}

absl::Status CheckTools(const Json& tools) {
  if (!tools.is_array()) return InvalidField("tools", absl::StrCat("is ", DescribeJson(tools), ", should be an array"));
  for (size_t i = 0; i < tools.size(); ++i) {
    std::string param = absl::StrCat("tools[", i, "]");
    BATON_RETURN_IF_ERROR(CheckObject(param, tools[i]));
    BATON_RETURN_IF_ERROR(CheckText(param, tools[i], "type"));
    const Json* function = &tools[i];
    if (const auto found = tools[i].find("function"); found != tools[i].end()) {
      absl::StrAppend(&param, ".function");
      BATON_RETURN_IF_ERROR(CheckObject(param, *found));
      function = &*found;
    }
    BATON_RETURN_IF_ERROR(CheckText(param, *function, "name", /*required=*/true));
    BATON_RETURN_IF_ERROR(CheckText(param, *function, "description"));
    const auto parameters = function->find("parameters");
    if (parameters != function->end() && !parameters->is_null()) {
      BATON_RETURN_IF_ERROR(CheckObject(absl::StrCat(param, ".parameters"), *parameters));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadChat(JsonFields& fields, v1::ChatPrompt* chat) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) return InvalidField("messages", "is missing");
  if (!messages->is_array()) return InvalidField("messages", absl::StrCat("is ", DescribeJson(*messages), ", should be an array"));
  if (messages->empty()) return InvalidField("messages", "is empty: at least one message is needed");
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_RETURN_IF_ERROR(ReadMessage(absl::StrCat("messages[", i, "]"), (*messages)[i], chat->add_messages()));
  }
  const Json* choice = fields.Find("tool_choice");
  const bool no_tools = choice != nullptr && *choice == "none";
  if (const Json* tools = fields.Find("tools")) {
    BATON_RETURN_IF_ERROR(CheckTools(*tools));
    if (!tools->empty() && !no_tools) chat->set_tools_json(DumpJson(*tools));
  }
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> prompt, fields.GetBool("add_generation_prompt"));
  if (prompt) chat->set_add_generation_prompt(*prompt);
  if (const Json* kwargs = fields.Find("chat_template_kwargs")) {
    if (!kwargs->is_object()) {
      return InvalidField("chat_template_kwargs", absl::StrCat("is ", DescribeJson(*kwargs), ", should be an object"));
    }
    if (!kwargs->empty()) chat->set_template_kwargs_json(DumpJson(*kwargs));
  }
  return absl::OkStatus();
}

}  // namespace baton
