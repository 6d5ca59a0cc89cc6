// SPDX-License-Identifier: Apache-2.0
#include "router/responses_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "router/openai_response.h"
#include "router/status_details.h"

namespace baton {

ResponsesAnswer::ResponsesAnswer(const OpenAiRequest& request, std::string id, std::string model, int64_t created)
    : repeated_(request.responses),
      id_(std::move(id)),
      model_(std::move(model)),
      created_(created),
      named_call_(request.tools.mode == ToolUse::Mode::kNamed),
      content_(request.tools) {}

std::string ResponsesAnswer::Events(int, const v1::GenerateResponse& response) {
  std::string events;
  Take(response, &events);
  return events;
}

void ResponsesAnswer::Add(int, const v1::GenerateResponse& response) { Take(response, nullptr); }

std::string ResponsesAnswer::LastEvents() {
  std::string events;
  if (items_.empty()) Open(/*call=*/false, "", /*always_new=*/true, &events);  // Nothing is a message too.
  CloseLast(&events);
  AddEvent(incomplete() ? "response.incomplete" : "response.completed", Json{{"response", ResponseJson(/*done=*/true)}}, &events);
  return events;
}

std::string ResponsesAnswer::Whole() {
  if (items_.empty()) Open(/*call=*/false, "", /*always_new=*/true, nullptr);
  CloseLast(nullptr);
  return DumpJson(ResponseJson(/*done=*/true));
}

std::string ResponsesAnswer::ErrorEvent(const absl::Status& status) {
  const Json error = ErrorJson(status)["error"];
  std::string events;
  AddEvent("error", Json{{"code", error["code"]}, {"message", error["message"]}, {"param", error["param"]}}, &events);
  Json response = ResponseJson(/*done=*/false);
  response["status"] = "failed";
  response["error"] = Json{{"code", "server_error"}, {"message", error["message"]}};
  AddEvent("response.failed", Json{{"response", std::move(response)}}, &events);
  return events;
}

void ResponsesAnswer::Take(const v1::GenerateResponse& response, std::string* events) {
  if (!std::exchange(begun_, true)) {
    AddEvent("response.created", Json{{"response", ResponseJson(/*done=*/false)}}, events);
    AddEvent("response.in_progress", Json{{"response", ResponseJson(/*done=*/false)}}, events);
  }
  if (response.has_usage()) {
    const v1::Usage& usage = response.usage();
    usage_ = Json{{"input_tokens", usage.prompt_tokens()},
                  {"input_tokens_details", {{"cached_tokens", usage.cached_tokens()}}},
                  {"output_tokens", usage.completion_tokens()},
                  {"output_tokens_details", {{"reasoning_tokens", 0}}},
                  {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()}};
  }
  if (response.has_timeline()) timeline_ = TimelineJson(response.timeline());
  for (const v1::ChoiceDelta& delta : response.deltas()) TakeDelta(delta, events);
}

void ResponsesAnswer::TakeDelta(const v1::ChoiceDelta& delta, std::string* events) {
  const ToolCallReader::Result read = content_.Read(delta);
  const Json logprobs = delta.logprobs_size() > 0 && !named_call_ ? LogprobsOf(delta) : Json::array();
  if (!read.content.empty() || !logprobs.empty()) {
    Item& item = Open(/*call=*/false, "", /*always_new=*/false, events);
    item.text += read.content;
    for (const Json& entry : logprobs) item.logprobs.push_back(entry);
    Json place = Place(items_.size() - 1);
    place["content_index"] = 0;
    place["delta"] = read.content;
    place["logprobs"] = logprobs;
    AddEvent("response.output_text.delta", std::move(place), events);
  }
  for (const ToolCall& call : read.calls) {
    // The pieces of a named call are one item, every other call is a whole one.
    Item& item = Open(/*call=*/true, call.name, /*always_new=*/!named_call_, events);
    item.text += call.arguments;
    Json place = Place(items_.size() - 1);
    place["delta"] = call.arguments;
    AddEvent("response.function_call_arguments.delta", std::move(place), events);
  }
  if (!delta.finish_reason().empty()) finish_reason_ = delta.finish_reason();
}

ResponsesAnswer::Item& ResponsesAnswer::Open(bool call, const std::string& name, bool always_new, std::string* events) {
  if (last_open_ && !always_new && items_.back().call == call) return items_.back();
  CloseLast(events);
  items_.push_back({.call = call, .name = name});
  last_open_ = true;
  const size_t index = items_.size() - 1;
  AddEvent("response.output_item.added", Json{{"output_index", index}, {"item", ItemJson(index, /*done=*/false)}}, events);
  if (!call) {
    Json place = Place(index);
    place["content_index"] = 0;
    place["part"] = PartJson(items_.back());
    AddEvent("response.content_part.added", std::move(place), events);
  }
  return items_.back();
}

void ResponsesAnswer::CloseLast(std::string* events) {
  if (!std::exchange(last_open_, false)) return;
  const size_t index = items_.size() - 1;
  const Item& item = items_.back();
  Json place = Place(index);
  if (item.call) {
    place["name"] = item.name;
    place["arguments"] = item.text;
    AddEvent("response.function_call_arguments.done", std::move(place), events);
  } else {
    place["content_index"] = 0;
    Json part = place;
    place["text"] = item.text;
    place["logprobs"] = item.logprobs;
    part["part"] = PartJson(item);
    AddEvent("response.output_text.done", std::move(place), events);
    AddEvent("response.content_part.done", std::move(part), events);
  }
  AddEvent("response.output_item.done", Json{{"output_index", index}, {"item", ItemJson(index, /*done=*/true)}}, events);
}

void ResponsesAnswer::AddEvent(const char* type, Json members, std::string* events) {
  if (events == nullptr) return;
  Json event{{"type", type}, {"sequence_number", sequence_++}};
  for (auto& [key, value] : members.items()) event[key] = std::move(value);
  absl::StrAppend(events, "event: ", type, "\ndata: ", DumpJson(event), "\n\n");
}

Json ResponsesAnswer::Place(size_t index) const {
  return Json{{"item_id", absl::StrCat(items_[index].call ? "fc_" : "msg_", id_, "_", index)}, {"output_index", index}};
}

Json ResponsesAnswer::PartJson(const Item& item) const {
  return Json{{"type", "output_text"}, {"text", item.text}, {"annotations", Json::array()}, {"logprobs", item.logprobs}};
}

Json ResponsesAnswer::ItemJson(size_t index, bool done) const {
  const Item& item = items_[index];
  // What a length limit cut is the last item.
  const bool cut = incomplete() && index + 1 == items_.size();
  Json json{{"id", Place(index)["item_id"]}, {"type", item.call ? "function_call" : "message"}, {"status", !done ? "in_progress" : cut ? "incomplete" : "completed"}};
  if (item.call) {
    json["call_id"] = absl::StrCat("call_", id_, "_", index);
    json["name"] = item.name;
    json["arguments"] = done ? item.text : "";
  } else {
    json["role"] = "assistant";
    json["content"] = done ? Json::array({PartJson(item)}) : Json::array();
  }
  return json;
}

Json ResponsesAnswer::ResponseJson(bool done) const {
  Json json{{"id", absl::StrCat("resp_", id_)},
            {"object", "response"},
            {"created_at", created_},
            {"status", !done ? "in_progress" : incomplete() ? "incomplete" : "completed"},
            {"background", false},
            {"error", Json()},
            {"incomplete_details", done && incomplete() ? Json{{"reason", "max_output_tokens"}} : Json()},
            {"model", model_}};
  Json output = Json::array();
  for (size_t i = 0; i < items_.size(); ++i) output.push_back(ItemJson(i, done || i + 1 < items_.size() || !last_open_));
  json["output"] = std::move(output);
  for (const auto& [key, value] : repeated_.items()) json[key] = value;
  json["previous_response_id"] = Json();
  json["store"] = false;
  json["truncation"] = "disabled";
  json["usage"] = usage_;
  if (done && !timeline_.is_null()) json["timeline"] = timeline_;
  return json;
}

}  // namespace baton
