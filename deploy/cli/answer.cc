// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/answer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/cli/command.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxChoices = 1 << 16;  // Of a router gone mad.

double Microseconds(double ms) { return std::round(ms * 1000.0) / 1000.0; }

Json LogprobsJson(const std::vector<v1::PositionLogprobs>& positions) {
  Json list = Json::array();
  for (const v1::PositionLogprobs& position : positions) {
    Json top = Json::array();
    for (const v1::TokenLogprob& token : position.top()) {
      top.push_back({{"token_id", token.token_id()}, {"logprob", ShortestDouble(token.logprob())}});
    }
    list.push_back(
        {{"token_id", position.token_id()}, {"logprob", ShortestDouble(position.logprob())}, {"top", std::move(top)}});
  }
  return list;
}

Json ChoiceJson(const Answer::Choice& choice, bool with_logprobs) {
  return {{"token_ids", choice.token_ids},
          {"text", choice.text},
          {"finish_reason", choice.finish_reason.empty() ? Json(nullptr) : Json(choice.finish_reason)},
          {"logprobs", with_logprobs ? LogprobsJson(choice.logprobs) : Json(nullptr)}};
}

Json TimelineJson(const v1::Timeline& timeline) {
  return {{"queued_ms", Microseconds(timeline.queued_ms())},
          {"tokenise_ms", Microseconds(timeline.tokenise_ms())},
          {"landing_ms", Microseconds(timeline.landing_ms())},
          {"prefill_ms", Microseconds(timeline.prefill_ms())},
          {"transfer_exposed_ms", Microseconds(timeline.transfer_exposed_ms())},
          {"first_step_ms", Microseconds(timeline.first_step_ms())},
          {"decode_ms", Microseconds(timeline.decode_ms())},
          {"total_ms", Microseconds(timeline.total_ms())},
          {"prefill_worker", timeline.prefill_worker()},
          {"decode_worker", timeline.decode_worker()},
          {"disaggregated", timeline.disaggregated()},
          {"reason", timeline.reason()},
          {"transport", timeline.transport()},
          {"kv_bytes", timeline.kv_bytes()},
          {"attempts", timeline.attempts()},
          {"recoveries", timeline.recoveries()},
          {"history_tokens", timeline.history_tokens()}};
}

std::string ByteText(int64_t bytes) {
  if (bytes < 10 << 10) return absl::StrCat(bytes, " bytes");
  if (bytes < 10 << 20) return absl::StrFormat("%.0f KiB", static_cast<double>(bytes) / 1024);
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void Answer::Add(const v1::GenerateResponse& response) {
  if (!response.id().empty()) id = response.id();
  if (!response.model().empty()) model = response.model();
  if (!response.request_id().empty()) request_id = response.request_id();
  for (const v1::ChoiceDelta& delta : response.deltas()) {
    if (delta.index() < 0 || delta.index() >= kMaxChoices) continue;
    if (choices.size() <= static_cast<size_t>(delta.index())) choices.resize(delta.index() + 1);
    Choice& choice = choices[delta.index()];
    choice.text += delta.text();
    choice.token_ids.insert(choice.token_ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
    if (!delta.finish_reason().empty()) choice.finish_reason = delta.finish_reason();
  }
  if (response.has_usage()) usage = response.usage();
  if (response.has_timeline()) timeline = response.timeline();
}

Json ToJson(const Answer& answer, bool with_logprobs) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    Json choice = {{"index", i}};
    choice.update(ChoiceJson(answer.choices[i], with_logprobs));
    choices.push_back(std::move(choice));
  }
  Json json = {{"id", answer.id}, {"model", answer.model}, {"choices", std::move(choices)}};
  if (!answer.request_id.empty()) json["request_id"] = answer.request_id;
  json.update(ChoiceJson(answer.choices.empty() ? Answer::Choice() : answer.choices[0], with_logprobs));
  json["usage"] = {{"prompt_tokens", answer.usage.prompt_tokens()},
                   {"completion_tokens", answer.usage.completion_tokens()},
                   {"cached_tokens", answer.usage.cached_tokens()}};
  json["timeline"] = TimelineJson(answer.timeline);
  return json;
}

std::string TimelineText(const Answer& answer) {
  const v1::Timeline& t = answer.timeline;
  const v1::Usage& usage = answer.usage;
  const int choices = std::max<int>(1, static_cast<int>(answer.choices.size()));
  std::string text = absl::StrFormat("%d prompt tokens (%d cached), %d generated", usage.prompt_tokens(),
                                     usage.cached_tokens(), usage.completion_tokens());
  // The first token of each choice is not decode's.
  if (const int decoded = usage.completion_tokens() - choices; decoded > 0 && t.decode_ms() > 0) {
    absl::StrAppendFormat(&text, " at %.1f per second", 1000.0 * decoded / t.decode_ms());
  }
  if (!answer.choices.empty() && !answer.choices[0].finish_reason.empty()) {
    absl::StrAppend(&text, ", finished: ", answer.choices[0].finish_reason);
  }
  const struct {
    const char* name;
    double ms;
  } phases[] = {{"queued", t.queued_ms()},     {"tokenise", t.tokenise_ms()},         {"landing", t.landing_ms()},
                {"prefill", t.prefill_ms()},   {"transfer", t.transfer_exposed_ms()}, {"first token", t.first_step_ms()},
                {"decode", t.decode_ms()}};
  absl::StrAppend(&text, "\n");
  for (const auto& phase : phases) absl::StrAppendFormat(&text, "%s %.1f | ", phase.name, phase.ms);
  absl::StrAppendFormat(&text, "total %.1f ms\n", t.total_ms());
  if (t.disaggregated()) {
    absl::StrAppend(&text, "prefill on ", t.prefill_worker(), ", decode on ", t.decode_worker(), "; ", ByteText(t.kv_bytes()),
                    " of KV cache by ", t.transport());
  } else {
    absl::StrAppend(&text, "prefill and decode on ", t.decode_worker());
  }
  if (t.history_tokens() > 0) absl::StrAppend(&text, "; ", t.history_tokens(), " tokens of history from ", t.decode_worker());
  if (t.attempts() > 1) absl::StrAppend(&text, "; ", t.attempts(), " attempts");
  if (t.recoveries() > 0) absl::StrAppend(&text, "; recovered ", t.recoveries(), " times");
  return text + "\n";
}

}  // namespace baton::cli
