// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/request.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "google/protobuf/descriptor.h"

namespace baton::cli {
namespace {

bool Given(const ConfigResult& config, const std::string& flag) {
  const auto found = config.sources.find(flag);
  return found != config.sources.end() && found->second != ConfigSource::kDefault;
}

absl::Status SetLogitBias(absl::string_view text, v1::Sampling* sampling) {
  auto parsed = ParseJson(text);
  if (!parsed.ok()) return Annotate(parsed.status(), "--logit-bias");
  if (!parsed->is_object()) return absl::InvalidArgumentError("--logit-bias: expected an object like {\"42\": -100}");
  for (const auto& [key, value] : parsed->items()) {
    int id = 0;
    if (!absl::SimpleAtoi(key, &id) || !value.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat("--logit-bias: '", key, "': expected a token id and a number"));
    }
    v1::LogitBias* bias = sampling->add_logit_bias();
    bias->set_token_id(id);
    bias->set_bias(value.get<double>());
  }
  return absl::OkStatus();
}

// The value of a flag, or standard input for "-".
absl::StatusOr<std::string> TextOrInput(const std::string& value) {
  if (value != "-") return value;
  return ReadStandardInput();
}

// Content as a text, or as a list of text parts, which are joined as the router's HTTP API joins them.
absl::StatusOr<std::string> ContentText(absl::string_view place, const nlohmann::ordered_json& content) {
  if (content.is_string()) return content.get<std::string>();
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(place, ": 'content' is neither a text, null, nor a list of {\"type\":\"text\",\"text\":...}"));
  if (!content.is_array() || content.empty()) return error;
  std::vector<std::string> texts;
  for (const auto& part : content) {
    const bool text = part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
                      part["text"].is_string();
    if (!text) return error;
    texts.push_back(part["text"].get<std::string>());
  }
  return absl::StrJoin(texts, "\n");
}

// A JSON text that the router hands to the template as it is: checked here, so that the error names the flag.
absl::StatusOr<std::string> CheckedJson(absl::string_view flag, const std::string& text, bool list) {
  const auto parsed = ParseOrderedJson(text);
  if (!parsed.ok()) return Annotate(parsed.status(), flag);
  if (list ? parsed->is_array() : parsed->is_object()) return text;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": expected a JSON ", list ? "list" : "object"));
}

absl::Status SetChat(const std::string& messages, v1::ChatPrompt* chat) {
  BATON_RETURN_IF_ERROR(AddMessages(messages, chat));
  if (const std::string tools = absl::GetFlag(FLAGS_tools); !tools.empty()) {
    BATON_ASSIGN_OR_RETURN(*chat->mutable_tools_json(), CheckedJson("--tools", tools, /*list=*/true));
  }
  if (const std::string kwargs = absl::GetFlag(FLAGS_template_kwargs); !kwargs.empty()) {
    BATON_ASSIGN_OR_RETURN(*chat->mutable_template_kwargs_json(), CheckedJson("--template-kwargs", kwargs, /*list=*/false));
  }
  return absl::OkStatus();
}

}  // namespace

ConfigGroup SamplingFlags() {
  return {"Sampling",
          {"temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty",
           "logit_bias"}};
}

ConfigGroup AnswerFlags() {
  return {"Answer", {"max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos", "keep_special"}};
}

absl::Status SetSampling(const ConfigResult& config, v1::GenerateRequest* request) {
  v1::Sampling* sampling = request->mutable_sampling();
  if (Given(config, "temperature")) sampling->set_temperature(absl::GetFlag(FLAGS_temperature));
  if (Given(config, "top_k")) sampling->set_top_k(absl::GetFlag(FLAGS_top_k));
  if (Given(config, "top_p")) sampling->set_top_p(absl::GetFlag(FLAGS_top_p));
  if (Given(config, "min_p")) sampling->set_min_p(absl::GetFlag(FLAGS_min_p));
  if (Given(config, "seed")) sampling->set_seed(absl::GetFlag(FLAGS_seed));
  if (Given(config, "repetition_penalty")) sampling->set_repetition_penalty(absl::GetFlag(FLAGS_repetition_penalty));
  if (Given(config, "presence_penalty")) sampling->set_presence_penalty(absl::GetFlag(FLAGS_presence_penalty));
  if (Given(config, "frequency_penalty")) sampling->set_frequency_penalty(absl::GetFlag(FLAGS_frequency_penalty));
  if (Given(config, "logit_bias")) BATON_RETURN_IF_ERROR(SetLogitBias(absl::GetFlag(FLAGS_logit_bias), sampling));
  request->set_model(absl::GetFlag(FLAGS_model));
  if (Given(config, "max_tokens")) request->set_max_tokens(absl::GetFlag(FLAGS_max_tokens));
  if (Given(config, "logprobs")) request->set_logprobs(absl::GetFlag(FLAGS_logprobs));
  if (Given(config, "n")) request->set_n(absl::GetFlag(FLAGS_n));
  request->set_min_tokens(absl::GetFlag(FLAGS_min_tokens));
  request->set_ignore_eos(absl::GetFlag(FLAGS_ignore_eos));
  request->set_cache_salt(absl::GetFlag(FLAGS_cache_salt));
  request->set_priority(absl::GetFlag(FLAGS_priority));
  request->set_request_id(absl::GetFlag(FLAGS_request_id));
  request->set_skip_special_tokens_off(absl::GetFlag(FLAGS_keep_special));
  for (const std::string& stop : StopStrings()) {
    if (stop.empty()) return absl::InvalidArgumentError("--stop: the text is empty");
    request->add_stop(stop);
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<int> stop_ids, ParseIntList("--stop-token-ids", absl::GetFlag(FLAGS_stop_token_ids)));
  for (const int id : stop_ids) request->add_stop_token_ids(id);
  return absl::OkStatus();
}

absl::Status SetPrompt(const ConfigResult& config, v1::GenerateRequest* request) {
  const int given = Given(config, "prompt") + Given(config, "messages") + Given(config, "prompt_ids");
  if (given != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(given == 0 ? "one" : "only one", " of --prompt, --messages and --prompt-ids is needed"));
  }
  if (Given(config, "prompt")) {
    BATON_ASSIGN_OR_RETURN(const std::string text, TextOrInput(absl::GetFlag(FLAGS_prompt)));
    request->set_text(text);
    if (Given(config, "add_special_tokens")) request->set_add_special_tokens(absl::GetFlag(FLAGS_add_special_tokens));
    return absl::OkStatus();
  }
  if (Given(config, "messages")) {
    BATON_ASSIGN_OR_RETURN(const std::string text, TextOrInput(absl::GetFlag(FLAGS_messages)));
    return SetChat(text, request->mutable_chat());
  }
  BATON_ASSIGN_OR_RETURN(const std::string text, TextOrInput(absl::GetFlag(FLAGS_prompt_ids)));
  BATON_ASSIGN_OR_RETURN(const std::vector<int> ids, ParseIntList("--prompt-ids", text));
  request->mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status AddMessages(absl::string_view json, v1::ChatPrompt* chat) {
  auto parsed = ParseOrderedJson(json);
  if (!parsed.ok()) return Annotate(parsed.status(), "--messages");
  if (!parsed->is_array()) return absl::InvalidArgumentError("--messages: expected a JSON list of {\"role\", \"content\"}");
  for (size_t i = 0; i < parsed->size(); ++i) {
    nlohmann::ordered_json item = (*parsed)[i];
    const std::string place = absl::StrCat("--messages: item ", i);
    if (!item.is_object() || !item.contains("role") || !item["role"].is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": expected an object with a text 'role'"));
    }
    v1::ChatMessage* message = chat->add_messages();
    message->set_role(item["role"].get<std::string>());
    item.erase("role");
    if (const auto content = item.find("content"); content != item.end()) {
      if (!content->is_null()) {
        BATON_ASSIGN_OR_RETURN(*message->mutable_content(), ContentText(place, *content));
      }
      item.erase("content");
    }
    if (!item.empty()) message->set_extra_json(DumpJson(item));
  }
  return absl::OkStatus();
}

absl::Status CheckTexts(const google::protobuf::Message& message) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const Field*> fields;
  reflection.ListFields(message, &fields);
  for (const Field* const field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        BATON_RETURN_IF_ERROR(CheckTexts(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                              : reflection.GetMessage(message, field)));
      }
      if (field->type() != Field::TYPE_STRING) continue;
      const std::string text =
          field->is_repeated() ? reflection.GetRepeatedString(message, field, i) : reflection.GetString(message, field);
      const size_t valid = ValidUtf8Prefix(text);
      if (valid == text.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat(field->name(), " of the request is not valid UTF-8 at byte ", valid));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::cli
