// SPDX-License-Identifier: Apache-2.0
#include "router/choice_text.h"

#include <string>

namespace baton {

bool ChoiceText::Push(const std::vector<internal::GeneratedToken>& tokens, v1::ChoiceDelta* delta) {
  delta->set_index(index_);
  for (const internal::GeneratedToken& token : tokens) {
    if (finished_) break;
    ++num_tokens_;
    delta->add_token_ids(token.token_id());
    if (with_logprobs_) AppendLogprobs(token, delta);
    // A token that ends the answer is no part of its text.
    if (token.finish_reason() != internal::STOP) Release(stops_.Push(detokenizer_.Push(token.token_id())), delta);
    if (finished_ || token.finish_reason() == internal::NOT_FINISHED) continue;
    Release(stops_.Push(detokenizer_.Finish()), delta);
    if (finished_) {
      stopped_by_text_ = false;  // The worker has ended by itself.
      continue;
    }
    delta->mutable_text()->append(stops_.Finish());
    Finish(token.finish_reason() == internal::LENGTH ? "length" : "stop", delta);
  }
  return finished_;
}

void ChoiceText::Release(StopStringMatcher::Result result, v1::ChoiceDelta* delta) {
  delta->mutable_text()->append(result.text);
  if (!result.stopped.has_value()) return;
  stopped_by_text_ = true;
  Finish("stop", delta);
}

void ChoiceText::Finish(absl::string_view reason, v1::ChoiceDelta* delta) {
  finished_ = true;
  finish_reason_ = std::string(reason);
  delta->set_finish_reason(finish_reason_);
}

void ChoiceText::AppendLogprobs(const internal::GeneratedToken& token, v1::ChoiceDelta* delta) const {
  auto bytes = [this](int32_t id) { return std::string(tokenizer_->TokenBytes(id)); };
  v1::PositionLogprobs* position = delta->add_logprobs();
  position->set_token_id(token.token_id());
  position->set_logprob(token.logprob());
  position->set_token_bytes(bytes(token.token_id()));
  for (const auto& entry : token.top()) {
    v1::TokenLogprob* top = position->add_top();
    top->set_token_id(entry.token_id());
    top->set_logprob(entry.logprob());
    top->set_token_bytes(bytes(entry.token_id()));
  }
}

}  // namespace baton
