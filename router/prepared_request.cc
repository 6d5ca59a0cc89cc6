// SPDX-License-Identifier: Apache-2.0
#include "router/prepared_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/grammar/json_schema.h"
#include "router/openai_messages.h"
#include "router/status_details.h"

namespace baton {
namespace {

absl::Status CheckUtf8(absl::string_view param, absl::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return InvalidField(param, absl::StrCat("is not valid UTF-8 at byte ", valid));
}

struct Range {
  double low, high;
  bool open_low;
  absl::string_view text;
};

absl::Status CheckRange(absl::string_view param, double value, const Range& range) {
  const bool above = range.open_low ? value > range.low : value >= range.low;
  if (std::isfinite(value) && above && value <= range.high) return absl::OkStatus();
  return InvalidField(param, absl::StrCat(value, " is out of range ", range.text));
}

absl::Status CheckSampling(const v1::Sampling& sampling) {
  if (sampling.has_temperature() && !(std::isfinite(sampling.temperature()) && sampling.temperature() >= 0)) {
    return InvalidField("temperature", absl::StrCat(sampling.temperature(), " is not a finite number of at least 0"));
  }
  const struct {
    bool present;
    absl::string_view param;
    double value;
    Range range;
  } checks[] = {
      {sampling.has_top_p(), "top_p", sampling.top_p(), {0, 1, true, "(0, 1]"}},
      {sampling.has_min_p(), "min_p", sampling.min_p(), {0, 1, false, "[0, 1]"}},
      {sampling.has_repetition_penalty(), "repetition_penalty", sampling.repetition_penalty(), {0, 10, true, "(0, 10]"}},
      {sampling.has_presence_penalty(), "presence_penalty", sampling.presence_penalty(), {-2, 2, false, "[-2, 2]"}},
      {sampling.has_frequency_penalty(), "frequency_penalty", sampling.frequency_penalty(), {-2, 2, false, "[-2, 2]"}},
      {sampling.has_top_k(), "top_k", static_cast<double>(sampling.top_k()), {-1, 2147483647.0, false, "[-1, 2^31)"}},
  };
  for (const auto& check : checks) {
    if (check.present) BATON_RETURN_IF_ERROR(CheckRange(check.param, check.value, check.range));
  }
  for (const auto& bias : sampling.logit_bias()) {
    BATON_RETURN_IF_ERROR(CheckRange("logit_bias", bias.bias(), {-100, 100, false, "[-100, 100]"}));
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(const v1::GenerateRequest& request) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      if (request.text().empty()) return InvalidField("prompt", "is empty: at least one token is needed");
      return CheckUtf8("prompt", request.text());
    case v1::GenerateRequest::kTokenIds:
      if (request.token_ids().ids().empty()) return InvalidField("prompt", "is empty: at least one token is needed");
      return absl::OkStatus();
    case v1::GenerateRequest::kChat: {
      if (request.chat().messages().empty()) return InvalidField("messages", "is empty: at least one message is needed");
      int i = 0;
      for (const auto& message : request.chat().messages()) {
        const std::string param = absl::StrCat("messages[", i++, "]");
        if (message.role().empty()) return InvalidField(absl::StrCat(param, ".role"), "is missing");
        BATON_RETURN_IF_ERROR(CheckUtf8(absl::StrCat(param, ".role"), message.role()));
        if (!IsKnownRole(message.role())) return InvalidField(absl::StrCat(param, ".role"), kKnownRoles);
        if (!message.has_content() && message.role() != "assistant") {
          return InvalidField(absl::StrCat(param, ".content"), "is missing");
        }
        BATON_RETURN_IF_ERROR(CheckUtf8(absl::StrCat(param, ".content"), message.content()));
        BATON_RETURN_IF_ERROR(CheckUtf8(param, message.extra_json()));
      }
      BATON_RETURN_IF_ERROR(CheckUtf8("tools", request.chat().tools_json()));
      return CheckUtf8("chat_template_kwargs", request.chat().template_kwargs_json());
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return InvalidField("prompt", "is missing: text, messages or token ids are needed");
}

// What the HTTP API calls the prompt.
const char* PromptField(const v1::GenerateRequest& request) { return request.has_chat() ? "messages" : "prompt"; }

absl::Status PromptTooLong(const v1::GenerateRequest& request, const std::string& size, int64_t context) {
  return InvalidField(PromptField(request), absl::StrCat("has ", size, "; the model's context is ", context,
                                                         " tokens and has to hold at least one more"));
}

// Rendering and tokenising what cannot fit would hold up others for seconds. A token stands for max_token_bytes at most; the
// factor leaves room for normalisers that shorten text and templates that leave out parts of a conversation.
absl::Status CheckBytes(const v1::GenerateRequest& request, const ServedModel& model, int64_t context, int64_t bytes,
                        absl::string_view whence) {
  constexpr int64_t kShortening = 4;
  const int64_t most_per_token = kShortening * model.max_token_bytes;
  if (most_per_token == 0 || bytes / most_per_token < context) return absl::OkStatus();
  return PromptTooLong(
      request, absl::StrCat(bytes, " bytes", whence, ", which are at least ", bytes / most_per_token, " tokens"), context);
}

absl::Status CheckTextIsThere(const v1::GenerateRequest& request, const ServedModel& model) {
  if (model.no_text.empty()) return absl::OkStatus();
  const absl::string_view instead = "; only prompts of token ids can be served, and their answers have token ids alone";
  if (!request.has_token_ids()) return InvalidField(PromptField(request), absl::StrCat("cannot be text: ", model.no_text, instead));
  if (request.stop_size() > 0) return InvalidField("stop", absl::StrCat("cannot be used: ", model.no_text, instead));
  return absl::OkStatus();
}

absl::Status CheckTokenId(absl::string_view param, int64_t id, int vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return InvalidField(param, absl::StrCat("has token id ", id, ", outside the vocabulary [0, ", vocab_size, ")"));
}

absl::StatusOr<std::vector<int32_t>> Tokenise(const v1::GenerateRequest& request, const ServedModel& model,
                                              const ModelLimits& limits) {
  if (!request.has_token_ids()) return TokenisePrompt(request, model, &limits);
  for (const int32_t id : request.token_ids().ids()) {
    BATON_RETURN_IF_ERROR(CheckTokenId("prompt", id, limits.vocab_size));
  }
  return std::vector<int32_t>(request.token_ids().ids().begin(), request.token_ids().ids().end());
}

absl::Status FillSampling(const v1::GenerateRequest& request, const ServedModel& model, const ModelLimits& limits,
                          int64_t num_prompt_tokens, internal::SamplingSpec* spec) {
  const v1::Sampling& sampling = request.sampling();
  spec->set_temperature(sampling.has_temperature() ? sampling.temperature() : 1.0);
  spec->set_top_k(sampling.top_k());
  spec->set_top_p(sampling.has_top_p() ? sampling.top_p() : 1.0);
  spec->set_min_p(sampling.min_p());
  spec->set_seed(sampling.has_seed() ? sampling.seed() : RandomUint64());
  spec->set_repetition_penalty(sampling.has_repetition_penalty() ? sampling.repetition_penalty() : 1.0);
  spec->set_presence_penalty(sampling.presence_penalty());
  spec->set_frequency_penalty(sampling.frequency_penalty());
  for (const auto& bias : sampling.logit_bias()) {
    BATON_RETURN_IF_ERROR(CheckTokenId("logit_bias", bias.token_id(), limits.vocab_size));
    spec->add_bias_token_ids(bias.token_id());
    spec->add_biases(bias.bias());
  }
  spec->set_num_logprobs(request.has_logprobs() ? request.logprobs() : -1);
  const int longest = limits.LongestFor(num_prompt_tokens);
  if (longest == 0) return PromptTooLong(request, absl::StrCat(num_prompt_tokens, " tokens"), limits.context_length());
  const int64_t left = longest - num_prompt_tokens;
  if (request.has_max_tokens() && request.max_tokens() > left) {
    return InvalidField("max_tokens", absl::StrCat(request.max_tokens(), " and a prompt of ", num_prompt_tokens,
                                                   " tokens exceed the model's context of ", longest, " tokens; at most ", left,
                                                   " fit"));
  }
  // Where none is wanted one is computed all the same, and nobody sees it.
  const int64_t max_tokens =
      request.has_max_tokens() ? std::max<int64_t>(1, request.max_tokens()) : limits.ShortestFor(num_prompt_tokens) - num_prompt_tokens;
  spec->set_max_tokens(static_cast<int32_t>(max_tokens));
  if (request.min_tokens() > max_tokens) {
    return InvalidField("min_tokens", absl::StrCat(request.min_tokens(), " is over max_tokens ", max_tokens));
  }
  spec->set_min_tokens(request.min_tokens());
  spec->set_ignore_eos(request.ignore_eos());
  for (const int32_t id : request.stop_token_ids()) {
    BATON_RETURN_IF_ERROR(CheckTokenId("stop_token_ids", id, limits.vocab_size));
    spec->add_stop_token_ids(id);
  }
  if (!request.ignore_eos()) {
    for (const int32_t id : model.tokenizer->special_tokens().end_of_generation) {
      if (id < limits.vocab_size) spec->add_stop_token_ids(id);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPromptLogprobs(const v1::GenerateRequest& request) {
  if (request.prompt_logprobs() < 0 || request.prompt_logprobs() > kMaxLogprobs) {
    return InvalidField("prompt_logprobs", absl::StrCat(request.prompt_logprobs(), " is out of range [0, ", kMaxLogprobs, "]"));
  }
  if (request.has_n() && request.n() > 1) return InvalidField("n", absl::StrCat(request.n(), " is over 1, with log-probabilities of the prompt"));
  return absl::OkStatus();
}

// Compiled here to be refused here; the decode worker compiles for itself.
absl::Status FillFormat(const v1::GenerateRequest& request, const ServedModel& model,
                        std::optional<internal::AnswerFormat>* answer) {
  const v1::ResponseFormat& format = request.response_format();
  if (format.format_case() == v1::ResponseFormat::FORMAT_NOT_SET) return absl::OkStatus();
  if (!model.no_text.empty()) return InvalidField("response_format", absl::StrCat("cannot be used: ", model.no_text));
  if (format.has_json_object()) {
    answer->emplace().set_json_object(true);
    return absl::OkStatus();
  }
  const absl::Status status = CompileJsonSchema(format.json_schema(), format.lenient()).status();
  if (!status.ok()) return InvalidField("response_format", absl::StrCat("has a schema that cannot be used: ", status.message()));
  answer->emplace().set_json_schema(format.json_schema());
  (*answer)->set_lenient(format.lenient());
  return absl::OkStatus();
}

}  // namespace

// A prompt that a prefill worker does not take may still be one token, which needs none.
int ModelLimits::ShortestFor(int64_t prompt_tokens) const {
  for (const ContextLimit& limit : contexts) {
    if (limit.total > prompt_tokens && (limit.prompt >= prompt_tokens || prompt_tokens == 1)) return limit.total;
  }
  return 0;
}

int ModelLimits::LongestFor(int64_t prompt_tokens) const {
  for (auto limit = contexts.rbegin(); limit != contexts.rend(); ++limit) {
    if (limit->total > prompt_tokens && (limit->prompt >= prompt_tokens || prompt_tokens == 1)) return limit->total;
  }
  return 0;
}

absl::Status ModelNotFound(absl::string_view asked, const ServedModel& model) {
  const absl::Status status =
      absl::NotFoundError(absl::StrCat("model ", ReplaceInvalidUtf8(asked), " is not served here; ", model.name, " is"));
  return WithErrorCode(WithParam(status, "model"), "model_not_found");
}

absl::Status CheckRequestId(absl::string_view param, absl::string_view id) {
  const bool visible = std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!id.empty() && id.size() <= kMaxRequestIdBytes && visible) return absl::OkStatus();
  return InvalidField(param, absl::StrCat(visible ? absl::StrCat("has ", id.size(), " characters") : "has other characters than visible ASCII",
                                          ", it must be 1 to ", kMaxRequestIdBytes, " visible ASCII characters"));
}

absl::Status CheckRequest(const v1::GenerateRequest& request, const ServedModel& model) {
  BATON_RETURN_IF_ERROR(CheckUtf8("model", request.model()));
  if (!request.model().empty() && request.model() != model.name) {
    return ModelNotFound(request.model(), model);
  }
  BATON_RETURN_IF_ERROR(CheckPrompt(request));
  BATON_RETURN_IF_ERROR(CheckTextIsThere(request, model));
  BATON_RETURN_IF_ERROR(CheckSampling(request.sampling()));
  const int64_t least = request.has_prompt_logprobs() ? 0 : 1;
  if (request.has_max_tokens() && request.max_tokens() < least) {
    return InvalidField("max_tokens", absl::StrCat(request.max_tokens(), " is below ", least));
  }
  if (request.has_prompt_logprobs()) BATON_RETURN_IF_ERROR(CheckPromptLogprobs(request));
  if (!request.request_id().empty()) BATON_RETURN_IF_ERROR(CheckRequestId("request_id", request.request_id()));
  if (request.min_tokens() < 0) return InvalidField("min_tokens", absl::StrCat(request.min_tokens(), " is below 0"));
  if (request.has_n() && (request.n() < 1 || request.n() > kMaxChoices)) {
    return InvalidField("n", absl::StrCat(request.n(), " is out of range [1, ", kMaxChoices, "]"));
  }
  if (request.has_logprobs() && (request.logprobs() < 0 || request.logprobs() > kMaxLogprobs)) {
    return InvalidField("logprobs", absl::StrCat(request.logprobs(), " is out of range [0, ", kMaxLogprobs, "]"));
  }
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return InvalidField("priority", absl::StrCat(request.priority(), " is out of range [", -kMaxPriority, ", ", kMaxPriority, "]"));
  }
  auto stops = StopStringMatcher::Create({request.stop().begin(), request.stop().end()});
  if (!stops.ok()) return WithParam(stops.status(), "stop");
  return absl::OkStatus();
}

absl::Status CheckPromptLength(const v1::GenerateRequest& request, const ServedModel& model, const ModelLimits& limits) {
  const int64_t context = limits.context_length();
  if (request.has_token_ids()) {
    const int64_t ids = request.token_ids().ids_size();
    return ids < context ? absl::OkStatus() : PromptTooLong(request, absl::StrCat(ids, " tokens"), context);
  }
  size_t bytes = request.has_text() ? request.text().size() : 0;
  for (const auto& message : request.chat().messages()) bytes += message.content().size() + message.extra_json().size();
  bytes += request.chat().tools_json().size() + request.chat().template_kwargs_json().size();
  return CheckBytes(request, model, context, static_cast<int64_t>(bytes), "");
}

absl::StatusOr<std::vector<int32_t>> TokenisePrompt(const v1::GenerateRequest& request, const ServedModel& model,
                                                    const ModelLimits* limits) {
  const bool add_special = !request.has_add_special_tokens() || request.add_special_tokens();
  if (request.has_text()) {
    return EncodePrompt(*model.tokenizer, request.text(), {.add_special = add_special, .parse_special = true});
  }
  if (model.render_chat == nullptr) return InvalidField("messages", "cannot be used: this model has no chat template");
  absl::StatusOr<std::string> text = model.render_chat(request.chat());
  if (!text.ok()) return WithParam(text.status(), "messages");
  if (limits != nullptr) {
    BATON_RETURN_IF_ERROR(
        CheckBytes(request, model, limits->context_length(), static_cast<int64_t>(text->size()), " by its template"));
  }
  // The template writes the special tokens itself.
  return EncodePrompt(*model.tokenizer, *text,
                      {.add_special = request.has_add_special_tokens() && add_special, .parse_special = true});
}

absl::StatusOr<PreparedRequest> PrepareRequest(const v1::GenerateRequest& request, const ServedModel& model,
                                               const ModelLimits& limits) {
  BATON_ASSIGN_OR_RETURN(StopStringMatcher stops,
                         StopStringMatcher::Create({request.stop().begin(), request.stop().end()}));
  PreparedRequest prepared{.stops = std::move(stops), .num_choices = request.has_n() ? request.n() : 1};
  BATON_ASSIGN_OR_RETURN(prepared.tokens, Tokenise(request, model, limits));
  if (prepared.tokens.empty()) return InvalidField("prompt", "is empty: at least one token is needed");
  BATON_RETURN_IF_ERROR(FillSampling(request, model, limits, static_cast<int64_t>(prepared.tokens.size()), &prepared.sampling));
  BATON_RETURN_IF_ERROR(FillFormat(request, model, &prepared.format));
  return prepared;
}

bool IsSlowToPrepare(const v1::GenerateRequest& request) {
  return request.has_chat() || request.response_format().has_json_schema() || (request.has_text() && request.text().size() > kInlinePromptBytes);
}

}  // namespace baton
