// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_ANSWER_H_
#define BATON_DEPLOY_CLI_ANSWER_H_

#include <string>
#include <vector>

#include "baton/v1/generation.pb.h"
#include "nlohmann/json.hpp"

namespace baton::cli {

// What a Generate call has said so far.
struct Answer {
  struct Choice {
    std::string text;
    std::vector<int> token_ids;
    std::vector<v1::PositionLogprobs> logprobs;
    std::string finish_reason;
  };
  std::string id;
  std::string model;
  std::string request_id;
  std::vector<Choice> choices;
  v1::Usage usage;
  v1::Timeline timeline;

  void Add(const v1::GenerateResponse& response);
};

// The object of `baton generate --json`: id, model, choices; the first choice's fields again at the top; usage, timeline.
// `logprobs` is null where none were asked for.
nlohmann::ordered_json ToJson(const Answer& answer, bool with_logprobs);

// Three short lines for people: counts and rate, the phases in milliseconds, who worked.
std::string TimelineText(const Answer& answer);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_ANSWER_H_
