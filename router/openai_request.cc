// SPDX-License-Identifier: Apache-2.0
#include "router/openai_request.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "router/json_fields.h"
#include "router/openai_format.h"
#include "router/openai_messages.h"
#include "router/openai_tools.h"
#include "router/prepared_request.h"
#include "router/status_details.h"

namespace baton {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt32Min = std::numeric_limits<int32_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();

absl::Status ReadTokenIds(absl::string_view param, const Json& array, google::protobuf::RepeatedField<int32_t>* ids) {
  if (!array.is_array()) return InvalidField(param, absl::StrCat("is ", DescribeJson(array), ", should be an array of token ids"));
  ids->Reserve(static_cast<int>(array.size()));
  for (const Json& entry : array) {
    const std::optional<int64_t> id = entry.is_number() ? ToWholeNumber(entry) : std::nullopt;
    if (!id || *id < kInt32Min || *id > kInt32Max) {
      return InvalidField(param, absl::StrCat("has ", DescribeJson(entry), " where a token id should be"));
    }
    ids->Add(static_cast<int32_t>(*id));
  }
  return absl::OkStatus();
}

absl::Status ReadStop(JsonFields& fields, v1::GenerateRequest* request) {
  const Json* stop = fields.Find("stop");
  if (stop == nullptr) return absl::OkStatus();
  if (stop->is_string()) {
    request->add_stop(stop->get<std::string>());
    return absl::OkStatus();
  }
  if (!stop->is_array()) return InvalidField("stop", absl::StrCat("is ", DescribeJson(*stop), ", should be a string or an array of them"));
  for (const Json& entry : *stop) {
    if (!entry.is_string()) return InvalidField("stop", absl::StrCat("has ", DescribeJson(entry), " where a string should be"));
    request->add_stop(entry.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadLogitBias(JsonFields& fields, v1::Sampling* sampling) {
  const Json* bias = fields.Find("logit_bias");
  if (bias == nullptr) return absl::OkStatus();
  if (!bias->is_object()) return InvalidField("logit_bias", absl::StrCat("is ", DescribeJson(*bias), ", should be an object"));
  for (const auto& [key, value] : bias->items()) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < kInt32Min || id > kInt32Max) {
      return InvalidField("logit_bias", "has a key that is no token id");
    }
    if (!value.is_number()) return InvalidField("logit_bias", absl::StrCat("has ", DescribeJson(value), " where a number should be"));
    v1::LogitBias* entry = sampling->add_logit_bias();
    entry->set_token_id(static_cast<int32_t>(id));
    entry->set_bias(value.get<double>());
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(JsonFields& fields, v1::Sampling* sampling) {
  using Setter = void (v1::Sampling::*)(double);
  const std::pair<absl::string_view, Setter> doubles[] = {
      {"temperature", &v1::Sampling::set_temperature},
      {"top_p", &v1::Sampling::set_top_p},
      {"min_p", &v1::Sampling::set_min_p},
      {"repetition_penalty", &v1::Sampling::set_repetition_penalty},
      {"presence_penalty", &v1::Sampling::set_presence_penalty},
      {"frequency_penalty", &v1::Sampling::set_frequency_penalty},
  };
  for (const auto& [name, set] : doubles) {
    BATON_ASSIGN_OR_RETURN(const std::optional<double> value, fields.GetDouble(name));
    if (value) (sampling->*set)(*value);
  }
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, fields.GetInt("top_k", -1, kInt32Max));
  if (top_k) sampling->set_top_k(static_cast<int32_t>(*top_k));
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> seed, fields.GetInt("seed", kInt64Min, kInt64Max));
  if (seed) sampling->set_seed(static_cast<uint64_t>(*seed));
  return ReadLogitBias(fields, sampling);
}

absl::Status ReadLogprobs(JsonFields& fields, bool chat, v1::GenerateRequest* request) {
  if (!chat) {
    BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> logprobs, fields.GetInt("logprobs", 0, kMaxLogprobs));
    if (logprobs) request->set_logprobs(static_cast<int32_t>(*logprobs));
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> logprobs, fields.GetBool("logprobs"));
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> top, fields.GetInt("top_logprobs", 0, kMaxLogprobs));
  if (logprobs.value_or(false)) {
    request->set_logprobs(static_cast<int32_t>(top.value_or(0)));
  } else if (top.value_or(0) > 0) {
    return InvalidField("top_logprobs", "needs logprobs to be true");
  }
  return absl::OkStatus();
}

absl::Status ReadLimits(JsonFields& fields, bool chat, v1::GenerateRequest* request) {
  // Both names are understood; the newer one wins.
  // The prompt's log-probabilities may be all that is wanted.
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> echo, chat ? std::optional<bool>() : fields.GetBool("echo"));
  const bool scores = echo.value_or(false) && request->has_logprobs();
  BATON_ASSIGN_OR_RETURN(std::optional<int64_t> max_tokens, fields.GetInt("max_tokens", scores ? 0 : 1, kInt64Max));
  if (chat) {
    BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> newer, fields.GetInt("max_completion_tokens", 1, kInt64Max));
    if (newer) max_tokens = newer;
  }
  if (max_tokens) request->set_max_tokens(*max_tokens);
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> min_tokens, fields.GetInt("min_tokens", 0, kInt32Max));
  request->set_min_tokens(static_cast<int32_t>(min_tokens.value_or(0)));
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> ignore_eos, fields.GetBool("ignore_eos"));
  request->set_ignore_eos(ignore_eos.value_or(false));
  if (const Json* ids = fields.Find("stop_token_ids")) {
    BATON_RETURN_IF_ERROR(ReadTokenIds("stop_token_ids", *ids, request->mutable_stop_token_ids()));
  }
  BATON_RETURN_IF_ERROR(ReadStop(fields, request));
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> n, fields.GetInt("n", 1, kMaxChoices));
  if (n) request->set_n(static_cast<int32_t>(*n));
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> best_of, fields.GetInt("best_of", 1, kMaxChoices));
  if (best_of && *best_of != n.value_or(1)) return InvalidField("best_of", "is not supported, except equal to n");
  return absl::OkStatus();
}

// Fields of other servers that ask for another answer than would come without them: leaving them out would be wrong text.
// False, null and what is empty ask for nothing.
absl::Status RefuseUnsupported(JsonFields& fields) {
  constexpr absl::string_view kFormat = "use response_format with a json_schema", kMessages = "write what is meant into the messages",
                              kTools = "use tools and tool_choice", kLogprobs = "use echo with logprobs of /v1/completions";
  static constexpr std::pair<const char*, absl::string_view> kFields[] = {
      {"guided_choice", kFormat},   {"guided_regex", kFormat},
      {"guided_grammar", kFormat},  {"structured_outputs", kFormat},
      {"structural_tag", kFormat},  {"grammar", kFormat},
      {"regex", kFormat},           {"ebnf", kFormat},
      {"functions", kTools},        {"function_call", kTools},
      {"chat_template", kMessages}, {"continue_final_message", kMessages},
      {"documents", kMessages},     {"prompt_logprobs", kLogprobs},
      {"truncate_prompt_tokens", "shorten the prompt"},
      {"include_stop_str_in_output", "the text ends before the stop string"},
      {"use_beam_search", "use n"},
      {"allowed_token_ids", "use logit_bias"},
      {"bad_words", "use logit_bias"},
  };
  for (const auto& [name, instead] : kFields) {
    const Json* const value = fields.Find(name);
    if (value == nullptr || *value == Json(false) || (value->is_string() && value->get_ref<const std::string&>().empty())) continue;
    if (*value == Json("none")) continue;  // Of function_call.
    if ((value->is_object() || value->is_array()) && value->empty()) continue;
    return InvalidField(name, absl::StrCat("is not supported: ", instead));
  }
  return absl::OkStatus();
}

absl::Status ReadOptions(JsonFields& fields, OpenAiRequest* parsed, v1::GenerateRequest* request) {
  BATON_ASSIGN_OR_RETURN(const std::optional<std::string> model, fields.GetString("model"));
  request->set_model(model.value_or(""));
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> skip_special, fields.GetBool("skip_special_tokens"));
  request->set_skip_special_tokens_off(!skip_special.value_or(true));
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> add_special, fields.GetBool("add_special_tokens"));
  if (add_special) request->set_add_special_tokens(*add_special);
  BATON_ASSIGN_OR_RETURN(const std::optional<std::string> salt, fields.GetString("cache_salt"));
  request->set_cache_salt(salt.value_or(""));
  BATON_ASSIGN_OR_RETURN(const std::optional<int64_t> priority, fields.GetInt("priority", -kMaxPriority, kMaxPriority));
  request->set_priority(static_cast<int32_t>(priority.value_or(0)));
  BATON_ASSIGN_OR_RETURN(const std::optional<std::string> request_id, fields.GetString("request_id"));
  request->set_request_id(request_id.value_or(""));
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> token_ids, fields.GetBool("return_token_ids"));
  parsed->return_token_ids = token_ids.value_or(false);
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> stream, fields.GetBool("stream"));
  parsed->stream = stream.value_or(false);
  if (const Json* options = fields.Find("stream_options")) {
    if (!options->is_object()) return InvalidField("stream_options", absl::StrCat("is ", DescribeJson(*options), ", should be an object"));
    JsonFields inner(*options);
    BATON_ASSIGN_OR_RETURN(const std::optional<bool> usage, inner.GetBool("include_usage"));
    parsed->include_usage = usage.value_or(false);
  }
  BATON_RETURN_IF_ERROR(RefuseUnsupported(fields));
  BATON_RETURN_IF_ERROR(ReadResponseFormat(fields, request));
  for (const char* name : {"user", "metadata", "store", "service_tier", "safety_identifier"}) {
    fields.Ignore(name);
  }
  return absl::OkStatus();
}

absl::Status SetPrompt(const Json& prompt, v1::GenerateRequest* request) {
  if (prompt.is_string()) {
    request->set_text(prompt.get<std::string>());
    return absl::OkStatus();
  }
  return ReadTokenIds("prompt", prompt, request->mutable_token_ids()->mutable_ids());
}

// A string, an array of strings, an array of token ids, or an array of such arrays.
absl::Status ReadPrompts(JsonFields& fields, const v1::GenerateRequest& common, OpenAiRequest* parsed) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return InvalidField("prompt", "is missing");
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> echo, fields.GetBool("echo"));
  BATON_ASSIGN_OR_RETURN(const std::optional<std::string> suffix, fields.GetString("suffix"));
  if (!suffix.value_or("").empty()) return InvalidField("suffix", "is not supported");
  if (!prompt->is_string() && !prompt->is_array()) {
    return InvalidField("prompt", absl::StrCat("is ", DescribeJson(*prompt), ", should be a string or an array"));
  }
  if (prompt->is_array() && prompt->empty()) return InvalidField("prompt", "is empty: at least one token is needed");
  const bool batch = prompt->is_array() && (prompt->front().is_string() || prompt->front().is_array());
  if (batch && prompt->size() > kMaxBatchPrompts) {
    return InvalidField("prompt", absl::StrCat("has ", prompt->size(), " prompts, at most ", kMaxBatchPrompts, " are taken"));
  }
  const bool strings = batch && prompt->front().is_string();
  const size_t count = batch ? prompt->size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const Json& one = batch ? (*prompt)[i] : *prompt;
    if (batch && one.is_string() != strings) return InvalidField("prompt", "mixes strings with arrays");
    v1::GenerateRequest request = common;
    BATON_RETURN_IF_ERROR(SetPrompt(one, &request));
    if (echo.value_or(false) && common.has_logprobs()) request.set_prompt_logprobs(common.logprobs());
    if (one.is_array() && one.empty()) return InvalidField("prompt", "is empty: at least one token is needed");
    parsed->echo_token_ids = echo.value_or(false) && !one.is_string();
    parsed->echo.push_back(echo.value_or(false) && one.is_string() ? one.get<std::string>() : "");
    parsed->requests.push_back(std::move(request));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenAiRequest> ParseOpenAiRequest(absl::string_view body, bool chat) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseOrderedJson(body));
  return ReadOpenAiRequest(json, chat);
}

absl::StatusOr<OpenAiRequest> ReadOpenAiRequest(const Json& json, bool chat) {
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat("body is ", DescribeJson(json), ", should be an object"));
  JsonFields fields(json);
  OpenAiRequest parsed{.chat = chat};
  v1::GenerateRequest common;
  BATON_RETURN_IF_ERROR(ReadOptions(fields, &parsed, &common));
  BATON_RETURN_IF_ERROR(ReadSampling(fields, common.mutable_sampling()));
  BATON_RETURN_IF_ERROR(ReadLogprobs(fields, chat, &common));
  BATON_RETURN_IF_ERROR(ReadLimits(fields, chat, &common));
  if (chat) {
    BATON_RETURN_IF_ERROR(ReadChat(fields, common.mutable_chat()));
    BATON_RETURN_IF_ERROR(ReadToolChoice(fields, &common, &parsed.tools));
    parsed.requests.push_back(common);
    parsed.echo.emplace_back();
  } else {
    for (const char* name : {"parallel_tool_calls", "tool_choice"}) fields.Ignore(name);
    BATON_RETURN_IF_ERROR(ReadPrompts(fields, common, &parsed));
  }
  parsed.num_choices = common.has_n() ? common.n() : 1;
  parsed.num_unknown_fields = fields.CountUnknown();
  return parsed;
}

}  // namespace baton
