// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAI_RESPONSE_H_
#define BATON_ROUTER_OPENAI_RESPONSE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "common/text/detokenizer.h"
#include "common/text/tokenizer.h"
#include "router/http_answer.h"
#include "router/json_fields.h"
#include "router/openai_request.h"
#include "router/openai_tools.h"

namespace baton {

// The answer of /v1/completions or /v1/chat/completions. Choices are numbered prompt by prompt. One thread.
class OpenAiResponse final : public HttpAnswer {
 public:
  // `tokenizer` outlives this. `id` is without its prefix.
  OpenAiResponse(const OpenAiRequest& request, const Tokenizer* tokenizer, std::string id, std::string model, int64_t created);

  std::string Events(int prompt, const v1::GenerateResponse& response) override;
  // The usage event if it was asked for, and [DONE].
  std::string LastEvents() override;
  std::string ErrorEvent(const absl::Status& status) override;
  void Add(int prompt, const v1::GenerateResponse& response) override;
  std::string Whole() override;

 private:
  struct Choice {
    Choice(const ToolUse& use, const Tokenizer* tokenizer, bool keep_special) : content(use), passed(tokenizer, keep_special) {}
    std::string text;
    std::vector<int32_t> token_ids;
    Json logprobs;  // As in the body; null until there are any.
    std::string finish_reason;
    bool begun = false;    // Its first event (the role) is out.
    ContentReader content;
    std::vector<ToolCall> calls;
    // For completions' logprobs: text of the tokens that have been listed, and its whole characters.
    Detokenizer passed;
    size_t text_offset = 0;
  };

  Json Chunk() const;
  using Positions = google::protobuf::RepeatedPtrField<v1::PositionLogprobs>;
  // `prompt`: log-probabilities of the prompt, where they come before the delta's.
  std::string TextEvents(int index, const v1::ChoiceDelta& delta, const Positions& prompt);
  std::string ChatEvents(int index, const v1::ChoiceDelta& delta);
  std::string FinishReason(const Choice& choice, const std::string& reason) const;
  Json CallJson(int index, size_t number, const ToolCall& call) const;
  // `begins`: the first of `positions` is the prompt's, which has none.
  Json CompletionLogprobs(Choice& choice, const Positions& positions, bool begins) const;
  // Null: there are none.
  Json Logprobs(Choice& choice, const v1::ChoiceDelta& delta, const Positions& prompt) const;
  void NoteUsage(const v1::GenerateResponse& response);
  Json Usage() const;

  const bool chat_, include_usage_, return_token_ids_;
  const int num_choices_;  // Per prompt.
  const ToolUse tools_;
  const std::vector<std::string> echo_;
  const Tokenizer* const tokenizer_;
  const std::string id_, model_;
  const int64_t created_;
  std::vector<Choice> choices_;
  int64_t prompt_tokens_ = 0, completion_tokens_ = 0, cached_tokens_ = 0;
  Json timeline_;
};

// Of each token of a delta: {"token", "logprob", "bytes", "top_logprobs"}.
Json LogprobsOf(const v1::ChoiceDelta& delta);
// {"error": {"message", "type", "param", "code"}}.
Json ErrorJson(const absl::Status& status);
// OpenAI's error body, valid UTF-8 whatever the message holds.
std::string OpenAiErrorBody(const absl::Status& status);
// Field by field as in the proto.
Json TimelineJson(const v1::Timeline& timeline);

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_RESPONSE_H_
