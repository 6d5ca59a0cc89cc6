// SPDX-License-Identifier: Apache-2.0
#include "router/text_loader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/json.h"
#include "common/base/logging.h"
#include "common/base/model_name.h"
#include "common/base/status_macros.h"
#include "common/text/chat_template.h"
#include "common/text/text_bundle.h"
#include "router/json_fields.h"
#include "router/openai_messages.h"
#include "router/status_details.h"

namespace baton {
namespace {

absl::StatusOr<Json> ParseField(absl::string_view field, const std::string& text) {
  if (text.empty()) return Json();
  absl::StatusOr<Json> json = ParseOrderedJson(text);
  if (!json.ok()) return InvalidField(field, json.status().message());
  return json;
}

absl::StatusOr<std::string> Render(const ChatTemplate& chat_template, const v1::ChatPrompt& chat) {
  ChatRequest request;
  request.messages = Json::array();
  for (const v1::ChatMessage& message : chat.messages()) {
    Json json = Json::object();
    json["role"] = message.role();
    json["content"] = message.has_content() ? Json(message.content()) : Json();
    const std::string param = absl::StrCat("messages[", request.messages.size(), "]");
    BATON_ASSIGN_OR_RETURN(Json extra, ParseField(param, message.extra_json()));
    if (!extra.is_null()) {
      if (!extra.is_object()) return InvalidField(param, "has extra_json that is no object");
      BATON_RETURN_IF_ERROR(NormaliseExtra(param, &extra));
      for (auto& [key, value] : extra.items()) {
        if (key != "role" && key != "content") json[key] = std::move(value);
      }
    }
    request.messages.push_back(std::move(json));
  }
  BATON_ASSIGN_OR_RETURN(request.tools, ParseField("tools", chat.tools_json()));
  if (!request.tools.is_null()) BATON_RETURN_IF_ERROR(CheckTools(request.tools));
  BATON_ASSIGN_OR_RETURN(request.variables, ParseField("chat_template_kwargs", chat.template_kwargs_json()));
  request.add_generation_prompt = !chat.has_add_generation_prompt() || chat.add_generation_prompt();
  return chat_template.Render(request);
}

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, const std::string& name, int template_processes) {
  BATON_ASSIGN_OR_RETURN(const TextBundle bundle, LoadModelText(path));
  ServedModel model;
  model.name = name.empty() ? ShortModelName(path) : name;
  model.tokenizer = bundle.tokenizer;
  model.no_text = bundle.no_text;
  if (!model.no_text.empty()) BATON_LOG(WARNING) << path << ": " << model.no_text << ": prompts of token ids only, and no text in answers";
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    model.max_token_bytes = std::max<int64_t>(model.max_token_bytes, model.tokenizer->TokenBytes(id).size());
  }
  model.created_unix_s = absl::ToUnixSeconds(absl::Now());
  if (!bundle.chat_template) return model;
  RendererPoolOptions pool_options;
  pool_options.num_processes = template_processes;
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<RendererPool> pool, RendererPool::Create(pool_options));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<const ChatTemplate> chat_template, ChatTemplate::Create(std::move(pool), bundle));
  model.render_chat = [shared = std::shared_ptr<const ChatTemplate>(std::move(chat_template))](const v1::ChatPrompt& chat) {
    return Render(*shared, chat);
  };
  return model;
}

}  // namespace baton
