// SPDX-License-Identifier: Apache-2.0
#include "router/openai_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/utf8.h"
#include "router/status_details.h"

namespace baton {
namespace {

// JSON has no infinity: a token that cannot come has this log-probability, as clients of vLLM know it.
double FiniteLogprob(double logprob) { return std::isfinite(logprob) ? std::max(logprob, -9999.0) : -9999.0; }

Json BytesJson(const std::string& bytes) {
  Json array = Json::array();
  for (const char c : bytes) array.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return array;
}

size_t CountCharacters(absl::string_view utf8) {
  return static_cast<size_t>(std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Lists of log-probabilities behind those that are there.
void Append(Json more, Json* logprobs) {
  if (more.is_null()) return;
  if (logprobs->is_null()) {
    *logprobs = std::move(more);
    return;
  }
  for (auto& [key, values] : more.items()) {
    for (Json& value : values) (*logprobs)[key].push_back(std::move(value));
  }
}

std::string Event(const Json& json) { return absl::StrCat("data: ", DumpJson(json), "\n\n"); }

std::string TokenText(const std::string& bytes) { return ReplaceInvalidUtf8(bytes); }

}  // namespace

Json ErrorJson(const absl::Status& status) {
  Json error;
  error["message"] = std::string(status.message());
  error["type"] = std::string(ErrorType(status.code()));
  const auto param = Param(status);
  error["param"] = param ? Json(*param) : Json();
  error["code"] = ErrorCode(status);
  return Json{{"error", std::move(error)}};
}

std::string OpenAiErrorBody(const absl::Status& status) { return DumpJson(ErrorJson(status)); }

Json LogprobsOf(const v1::ChoiceDelta& delta) {
  Json content = Json::array();
  for (const v1::PositionLogprobs& position : delta.logprobs()) {
    Json entry{{"token", TokenText(position.token_bytes())},
               {"logprob", FiniteLogprob(position.logprob())},
               {"bytes", BytesJson(position.token_bytes())}};
    Json top = Json::array();
    for (const v1::TokenLogprob& other : position.top()) {
      top.push_back(Json{{"token", TokenText(other.token_bytes())},
                         {"logprob", FiniteLogprob(other.logprob())},
                         {"bytes", BytesJson(other.token_bytes())}});
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

Json TimelineJson(const v1::Timeline& t) {
  return Json{{"queued_ms", t.queued_ms()},
              {"tokenise_ms", t.tokenise_ms()},
              {"landing_ms", t.landing_ms()},
              {"prefill_ms", t.prefill_ms()},
              {"transfer_exposed_ms", t.transfer_exposed_ms()},
              {"first_step_ms", t.first_step_ms()},
              {"decode_ms", t.decode_ms()},
              {"total_ms", t.total_ms()},
              {"prefill_worker", t.prefill_worker()},
              {"decode_worker", t.decode_worker()},
              {"disaggregated", t.disaggregated()},
              {"reason", t.reason()},
              {"transport", t.transport()},
              {"kv_bytes", t.kv_bytes()},
              {"attempts", t.attempts()},
              {"recoveries", t.recoveries()},
              {"history_tokens", t.history_tokens()}};
}

OpenAiResponse::OpenAiResponse(const OpenAiRequest& request, const Tokenizer* tokenizer, std::string id, std::string model,
                               int64_t created)
    : chat_(request.chat),
      include_usage_(request.include_usage),
      return_token_ids_(request.return_token_ids),
      num_choices_(request.num_choices),
      tools_(request.tools),
      echo_(request.echo),
      tokenizer_(tokenizer),
      id_(absl::StrCat(request.chat ? "chatcmpl-" : "cmpl-", id)),
      model_(std::move(model)),
      created_(created),
      choices_(request.requests.size() * static_cast<size_t>(request.num_choices),
               Choice(request.tools, tokenizer, !request.requests.empty() && request.requests[0].skip_special_tokens_off())) {}

std::string OpenAiResponse::Events(int prompt, const v1::GenerateResponse& response) {
  NoteUsage(response);
  std::string events;
  for (const v1::ChoiceDelta& delta : response.deltas()) {
    const int index = prompt * num_choices_ + delta.index();
    events += chat_ ? ChatEvents(index, delta) : TextEvents(index, delta, response.prompt_logprobs());
  }
  return events;
}

std::string OpenAiResponse::LastEvents() {
  std::string events;
  if (include_usage_) {
    Json chunk = Chunk();
    chunk["choices"] = Json::array();
    chunk["usage"] = Usage();
    if (!timeline_.is_null()) chunk["timeline"] = timeline_;
    events = Event(chunk);
  }
  return events + "data: [DONE]\n\n";
}

std::string OpenAiResponse::ErrorEvent(const absl::Status& status) { return Event(ErrorJson(status)); }

void OpenAiResponse::Add(int prompt, const v1::GenerateResponse& response) {
  NoteUsage(response);
  for (const v1::ChoiceDelta& delta : response.deltas()) {
    Choice& choice = choices_[prompt * num_choices_ + delta.index()];
    Append(Logprobs(choice, delta, response.prompt_logprobs()), &choice.logprobs);
    ToolCallReader::Result read = choice.content.Read(delta);
    choice.text += read.content;
    for (ToolCall& call : read.calls) {
      if (tools_.mode == ToolUse::Mode::kNamed && !choice.calls.empty()) {
        choice.calls[0].arguments += call.arguments;
      } else {
        choice.calls.push_back(std::move(call));
      }
    }
    choice.token_ids.insert(choice.token_ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    if (!delta.finish_reason().empty()) choice.finish_reason = delta.finish_reason();
  }
}

std::string OpenAiResponse::Whole() {
  Json body = Chunk();
  body["object"] = chat_ ? "chat.completion" : "text_completion";
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json entry;
    entry["index"] = i;
    if (chat_) {
      const bool called = !choice.calls.empty();
      entry["message"] = Json{{"role", "assistant"}, {"content", called && choice.text.empty() ? Json() : Json(choice.text)}};
      for (size_t k = 0; k < choice.calls.size(); ++k) {
        entry["message"]["tool_calls"].push_back(CallJson(static_cast<int>(i), k, choice.calls[k]));
      }
    } else {
      entry["text"] = echo_[i / num_choices_] + choice.text;
    }
    entry["logprobs"] = choice.logprobs;
    entry["finish_reason"] = FinishReason(choice, choice.finish_reason);
    if (return_token_ids_) entry["token_ids"] = choice.token_ids;
    choices.push_back(std::move(entry));
  }
  body["choices"] = std::move(choices);
  body["usage"] = Usage();
  if (!timeline_.is_null()) body["timeline"] = timeline_;
  return DumpJson(body);
}

Json OpenAiResponse::Chunk() const {
  return Json{{"id", id_},
              {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
              {"created", created_},
              {"model", model_}};
}

std::string OpenAiResponse::TextEvents(int index, const v1::ChoiceDelta& delta, const Positions& prompt) {
  Choice& choice = choices_[index];
  std::string text = delta.text();
  if (!std::exchange(choice.begun, true)) text = echo_[index / num_choices_] + text;
  const bool finish = !delta.finish_reason().empty();
  if (text.empty() && delta.logprobs_size() == 0 && prompt.empty() && !return_token_ids_ && !finish) return "";
  Json entry;
  entry["index"] = index;
  entry["text"] = std::move(text);
  entry["logprobs"] = Logprobs(choice, delta, prompt);
  entry["finish_reason"] = finish ? Json(delta.finish_reason()) : Json();
  if (return_token_ids_) entry["token_ids"] = std::vector<int32_t>(delta.token_ids().begin(), delta.token_ids().end());
  Json chunk = Chunk();
  chunk["choices"] = Json::array({std::move(entry)});
  return Event(chunk);
}

std::string OpenAiResponse::ChatEvents(int index, const v1::ChoiceDelta& delta) {
  Choice& choice = choices_[index];
  std::string events;
  auto add = [&](Json content, Json logprobs, Json finish, bool with_ids) {
    Json entry;
    entry["index"] = index;
    entry["delta"] = std::move(content);
    entry["logprobs"] = std::move(logprobs);
    entry["finish_reason"] = std::move(finish);
    if (with_ids) entry["token_ids"] = std::vector<int32_t>(delta.token_ids().begin(), delta.token_ids().end());
    Json chunk = Chunk();
    chunk["choices"] = Json::array({std::move(entry)});
    events += Event(chunk);
  };
  if (!std::exchange(choice.begun, true)) add(Json{{"role", "assistant"}, {"content", ""}}, Json(), Json(), false);
  const ToolCallReader::Result read = choice.content.Read(delta);
  if (!read.content.empty() || delta.logprobs_size() > 0 || return_token_ids_) {
    add(Json{{"content", read.content}}, delta.logprobs_size() > 0 ? Json{{"content", LogprobsOf(delta)}} : Json(), Json(), return_token_ids_);
  }
  for (const ToolCall& call : read.calls) {
    const size_t number = choice.calls.size();
    Json json = CallJson(index, number, call);
    json["index"] = number;
    if (tools_.mode == ToolUse::Mode::kNamed && number > 0) {  // More of the arguments of the only one.
      json = Json{{"index", 0}, {"function", {{"arguments", call.arguments}}}};
    } else {
      choice.calls.push_back(call);
    }
    add(Json{{"tool_calls", Json::array({std::move(json)})}}, Json(), Json(), false);
  }
  if (!delta.finish_reason().empty()) add(Json::object(), Json(), FinishReason(choice, delta.finish_reason()), false);
  return events;
}

// As OpenAI's: a call that was asked for by name ends with "stop".
std::string OpenAiResponse::FinishReason(const Choice& choice, const std::string& reason) const {
  const bool calls = tools_.mode != ToolUse::Mode::kNamed && !choice.calls.empty();
  return calls && reason == "stop" ? "tool_calls" : reason;
}

Json OpenAiResponse::CallJson(int index, size_t number, const ToolCall& call) const {
  return Json{{"id", absl::StrCat("call_", absl::string_view(id_).substr(chat_ ? 9 : 5), "_", index, "_", number)},
              {"type", "function"},
              {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json OpenAiResponse::Logprobs(Choice& choice, const v1::ChoiceDelta& delta, const Positions& prompt) const {
  Json logprobs;
  if (!prompt.empty()) Append(CompletionLogprobs(choice, prompt, /*begins=*/true), &logprobs);
  if (delta.logprobs_size() > 0) Append(chat_ ? Json{{"content", LogprobsOf(delta)}} : CompletionLogprobs(choice, delta.logprobs(), /*begins=*/false), &logprobs);
  return logprobs;
}

Json OpenAiResponse::CompletionLogprobs(Choice& choice, const Positions& positions, bool begins) const {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const v1::PositionLogprobs& position : positions) {
    const std::string text = TokenText(position.token_bytes());
    tokens.push_back(text);
    offsets.push_back(choice.text_offset);
    // As OpenAI's: in characters, not bytes. A part of a character stands where the character begins.
    choice.text_offset += CountCharacters(choice.passed.Push(position.token_id()));
    if (std::exchange(begins, false)) {
      values.push_back(Json());
      tops.push_back(Json());
      continue;
    }
    values.push_back(FiniteLogprob(position.logprob()));
    Json top = Json::object();
    for (const v1::TokenLogprob& other : position.top()) {
      // Tokens that are parts of characters may look alike: the likeliest keeps the name.
      const std::string name = TokenText(other.token_bytes());
      if (!top.contains(name)) top[name] = FiniteLogprob(other.logprob());
    }
    tops.push_back(std::move(top));
  }
  return Json{{"text_offset", std::move(offsets)},
              {"token_logprobs", std::move(values)},
              {"tokens", std::move(tokens)},
              {"top_logprobs", std::move(tops)}};
}

void OpenAiResponse::NoteUsage(const v1::GenerateResponse& response) {
  if (!response.has_usage()) return;
  prompt_tokens_ += response.usage().prompt_tokens();
  completion_tokens_ += response.usage().completion_tokens();
  cached_tokens_ += response.usage().cached_tokens();
  if (response.has_timeline()) timeline_ = TimelineJson(response.timeline());
}

Json OpenAiResponse::Usage() const {
  return Json{{"prompt_tokens", prompt_tokens_},
              {"completion_tokens", completion_tokens_},
              {"total_tokens", prompt_tokens_ + completion_tokens_},
              {"prompt_tokens_details", Json{{"cached_tokens", cached_tokens_}}}};
}

}  // namespace baton
