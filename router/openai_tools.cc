// SPDX-License-Identifier: Apache-2.0
#include "router/openai_tools.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "router/status_details.h"

namespace baton {
namespace {

const Json& FunctionOf(const Json& tool) { return tool.contains("function") ? tool["function"] : tool; }

// A schema that becomes a part of another one takes its references along. Data that looks like one stays as it is, and so
// does a member that is only named like a keyword.
void MoveReferences(const std::string& place, Json* schema) {
  static constexpr absl::string_view kData[] = {"const", "enum", "default", "examples", "example"};
  static constexpr absl::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
  if (schema->is_array()) {
    for (Json& value : *schema) MoveReferences(place, &value);
  }
  if (!schema->is_object()) return;
  for (auto& [key, value] : schema->items()) {
    if (key == "$ref" && value.is_string()) {
      const std::string ref = value.get<std::string>();
      if (ref == "#" || absl::StartsWith(ref, "#/")) value = place + ref.substr(1);
    } else if (std::ranges::find(kMaps, key) != std::end(kMaps) && value.is_object()) {
      for (auto& [name, part] : value.items()) MoveReferences(place, &part);
    } else if (std::ranges::find(kData, key) == std::end(kData)) {
      MoveReferences(place, &value);
    }
  }
}

Json ParametersOf(const Json& tool) {
  const Json& function = FunctionOf(tool);
  const auto found = function.find("parameters");
  return found == function.end() || found->is_null() ? Json{{"type", "object"}} : *found;
}

bool IsStrict(const Json& tool) {
  const Json& function = FunctionOf(tool);
  return function.contains("strict") && function["strict"] == Json(true);
}

// A list of calls: {"name": ..., "arguments": {...}} of any of the tools.
Json ListOfCalls(const Json& tools, bool parallel) {
  Json definitions = Json::object(), calls = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string name = absl::StrCat("tool", i);
    Json parameters = ParametersOf(tools[i]);
    MoveReferences(absl::StrCat("#/$defs/", name), &parameters);
    definitions[name] = std::move(parameters);
    calls.push_back(Json{{"type", "object"},
                         {"properties", {{"name", {{"const", FunctionOf(tools[i])["name"]}}},
                                         {"arguments", {{"$ref", absl::StrCat("#/$defs/", name)}}}}},
                         {"required", {"name", "arguments"}},
                         {"additionalProperties", false}});
  }
  Json list = {{"$defs", std::move(definitions)}, {"type", "array"}, {"items", {{"anyOf", std::move(calls)}}}, {"minItems", 1}};
  if (!parallel) list["maxItems"] = 1;
  return list;
}

}  // namespace

absl::Status ReadToolChoice(JsonFields& fields, v1::GenerateRequest* request, ToolUse* use) {
  const Json* const choice = fields.Find("tool_choice");
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> parallel, fields.GetBool("parallel_tool_calls"));
  const Json* const found = fields.Find("tools");
  const Json tools = found == nullptr ? Json::array() : *found;
  const bool named = choice != nullptr && choice->is_object();
  std::string word = choice != nullptr && choice->is_string() ? choice->get<std::string>() : "auto";
  if (choice != nullptr && !choice->is_string() && !named) {
    return InvalidField("tool_choice", absl::StrCat("is ", DescribeJson(*choice), ", should be a string or an object"));
  }
  if (word != "none" && word != "auto" && word != "required") {
    return InvalidField("tool_choice", "is none of none, auto, required and an object that names a function");
  }
  if (word == "none" || (tools.empty() && word == "auto" && !named)) return absl::OkStatus();
  if (tools.empty()) return InvalidField("tool_choice", "asks for a call, but there are no tools");
  for (const Json& tool : tools) use->names.push_back(FunctionOf(tool)["name"].get<std::string>());
  if (word == "auto" && !named) {
    use->mode = request->has_response_format() ? ToolUse::Mode::kNone : ToolUse::Mode::kAuto;
    return absl::OkStatus();
  }
  if (request->has_response_format()) return InvalidField("tool_choice", "cannot ask for a call beside a response_format");
  if (!named) {
    use->mode = ToolUse::Mode::kRequired;
    bool strict = true;
    for (const Json& tool : tools) strict = strict && IsStrict(tool);
    request->mutable_response_format()->set_json_schema(DumpJson(ListOfCalls(tools, parallel.value_or(true))));
    request->mutable_response_format()->set_lenient(!strict);
    return absl::OkStatus();
  }
  const Json& function = FunctionOf(*choice);
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) {
    return InvalidField("tool_choice", "names no function");
  }
  use->mode = ToolUse::Mode::kNamed;
  use->name = function["name"].get<std::string>();
  for (const Json& tool : tools) {
    if (FunctionOf(tool)["name"] != function["name"]) continue;
    request->mutable_response_format()->set_json_schema(DumpJson(ParametersOf(tool)));
    request->mutable_response_format()->set_lenient(!IsStrict(tool));
    return absl::OkStatus();
  }
  return InvalidField("tool_choice", "names a function that is none of the tools");
}

absl::Status NameTool(const ToolUse& use, const absl::Status& status) {
  const bool named = use.mode == ToolUse::Mode::kNamed;
  if ((!named && use.mode != ToolUse::Mode::kRequired) || Param(status) != "response_format") return status;
  absl::string_view problem = status.message();
  absl::ConsumePrefix(&problem, "response_format ");
  const absl::string_view tool = "#/$defs/tool";
  const size_t at = problem.find(tool);
  size_t number = use.names.size();
  std::string place;
  if (named) {
    number = static_cast<size_t>(std::ranges::find(use.names, use.name) - use.names.begin());
  } else if (at != absl::string_view::npos) {
    const size_t begin = at + tool.size();
    const size_t end = std::min(problem.find_first_not_of("0123456789", begin), problem.size());
    place = std::string(problem.substr(at, end - at));
    if (!absl::SimpleAtoi(problem.substr(begin, end - begin), &number)) number = use.names.size();
  }
  if (number >= use.names.size()) return InvalidField("tool_choice", problem);
  std::string text(problem);
  if (!place.empty()) text = absl::StrReplaceAll(text, {{place + "/", "#/"}, {place + ":", "#:"}, {place + "\"", "#\""}});
  return InvalidField(absl::StrCat("tools[", number, "].function.parameters"), absl::StrCat("of ", use.names[number], " ", text));
}

ToolCallReader::Result ContentReader::Read(const v1::ChoiceDelta& delta) {
  ToolCallReader::Result result;
  if (use_.mode == ToolUse::Mode::kNone) {
    result.content = delta.text();
  } else if (use_.mode == ToolUse::Mode::kNamed) {
    if (!std::exchange(begun_, true) || !delta.text().empty()) result.calls.push_back({use_.name, delta.text()});
  } else {
    result = calls_.Push(delta.text());
    if (delta.finish_reason().empty()) return result;
    ToolCallReader::Result rest = calls_.Finish();
    result.content += rest.content;
    std::ranges::move(rest.calls, std::back_inserter(result.calls));
  }
  return result;
}

}  // namespace baton
