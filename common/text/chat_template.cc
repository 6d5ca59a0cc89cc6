// SPDX-License-Identifier: Apache-2.0
#include "common/text/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using nlohmann::ordered_json;

// Recursion is bounded by max_depth.
bool IsDeeperThan(const ordered_json& value, int max_depth) {
  if (!value.is_structured()) return false;
  if (max_depth <= 0) return true;
  return std::any_of(value.begin(), value.end(),
                     [max_depth](const ordered_json& v) { return IsDeeperThan(v, max_depth - 1); });
}

absl::Status CheckShape(const ordered_json& value, absl::string_view name, ordered_json::value_t wanted) {
  if (value.is_null()) return absl::OkStatus();
  if (value.type() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": needs ", wanted == ordered_json::value_t::array ? "a list" : "an object", ", is ", value.type_name()));
  }
  if (IsDeeperThan(value, ChatTemplate::kMaxDepth)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": nested deeper than ", ChatTemplate::kMaxDepth));
  }
  return absl::OkStatus();
}

absl::Status CheckMessages(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return absl::InvalidArgumentError("messages: needs a list of at least one message");
  }
  BATON_RETURN_IF_ERROR(CheckShape(messages, "messages", ordered_json::value_t::array));
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& message = messages[i];
    const std::string name = absl::StrCat("messages[", i, "]");
    if (!message.is_object()) return absl::InvalidArgumentError(absl::StrCat(name, ": needs an object"));
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".role: needs a text"));
    }
    const auto content = message.find("content");
    if (content != message.end() && !content->is_null() && !content->is_string() && !content->is_array()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ".content: needs a text or a list of parts, is ", content->type_name()));
    }
    const auto calls = message.find("tool_calls");
    if (calls != message.end() && !calls->is_null() && !calls->is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".tool_calls: needs a list, is ", calls->type_name()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Create(std::shared_ptr<RendererPool> pool,
                                                                         const TextBundle& bundle) {
  if (!bundle.chat_template) return absl::FailedPreconditionError("the model has no chat template");
  std::unique_ptr<const ChatTemplate> chat_template(new ChatTemplate(std::move(pool), bundle));
  for (const std::string* source : {&chat_template->source_, &chat_template->tool_source_}) {
    const absl::Status compiled = chat_template->Call({{"template", *source}, {"compile_only", true}}).status();
    if (!compiled.ok()) return Annotate(compiled, "chat template");
  }
  return chat_template;
}

absl::StatusOr<std::string> ChatTemplate::Call(const ordered_json& request) const {
  std::string frame;
  try {
    frame = request.dump();
  } catch (const ordered_json::exception&) {
    return absl::InvalidArgumentError("messages: invalid UTF-8");
  }
  BATON_ASSIGN_OR_RETURN(const std::string reply, pool_->Call(frame));
  const nlohmann::json answer = nlohmann::json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("text") && answer["text"].is_string()) {
    return answer["text"].get<std::string>();
  }
  if (answer.is_object() && answer.contains("error") && answer["error"].is_string()) {
    return absl::InvalidArgumentError(answer["error"].get<std::string>());
  }
  return absl::InternalError("chat template renderer: answer of another shape");
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatRequest& request) const {
  BATON_RETURN_IF_ERROR(CheckMessages(request.messages));
  BATON_RETURN_IF_ERROR(CheckShape(request.tools, "tools", ordered_json::value_t::array));
  BATON_RETURN_IF_ERROR(CheckShape(request.documents, "documents", ordered_json::value_t::array));
  BATON_RETURN_IF_ERROR(CheckShape(request.variables, "variables", ordered_json::value_t::object));
  if (request.variables.size() > kMaxVariables) {
    return absl::InvalidArgumentError(
        absl::StrCat("variables: ", request.variables.size(), " names, at most ", kMaxVariables));
  }
  ordered_json variables = ordered_json::object();
  for (const auto& [name, text] : tokens_) variables[name] = text;
  if (request.variables.is_object()) variables.update(request.variables);
  const bool has_tools = !request.tools.is_null() && !request.tools.empty();
  ordered_json call = {{"template", has_tools ? tool_source_ : source_},
                       {"messages", request.messages},
                       {"tools", request.tools},
                       {"documents", request.documents},
                       {"variables", std::move(variables)},
                       {"add_generation_prompt", request.add_generation_prompt}};
  if (request.now) call["now"] = *request.now;
  return Call(call);
}

}  // namespace baton
