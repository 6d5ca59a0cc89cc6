// SPDX-License-Identifier: Apache-2.0
// What a pass computed becomes tokens and log-probabilities, and their owners hear of it.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/engine/engine_core_impl.h"

namespace baton {

// The row of position p tells of token p + 1. After a preemption the first rows were told of before.
bool EngineCore::Impl::DeliverPromptLogprobs(const Batch::Entry& entry, const float* logits) {
  Sequence* const sequence = entry.sequence;
  const SequenceSpec& spec = entry.request->spec;
  const size_t vocab_size = static_cast<size_t>(model_->config().vocab_size);
  const int first = sequence->num_prompt_logprobs + 1;
  std::vector<SampledToken> scored;
  for (int token = std::max(first, entry.begin + 1); token <= entry.end && token < spec.num_prompt_tokens; ++token) {
    const std::span<const float> row(logits + static_cast<size_t>(token - 1 - entry.begin) * vocab_size, vocab_size);
    auto score = sampler_.Score(row, sequence->tokens[static_cast<size_t>(token)], spec.prompt_logprobs, token - 1);
    if (!score.ok()) {
      FailRequest(entry.request, score.status());
      return false;
    }
    scored.push_back(*std::move(score));
  }
  if (scored.empty()) return true;
  sequence->num_prompt_logprobs += static_cast<int>(scored.size());
  if (entry.request->sink.on_prompt_logprobs) entry.request->sink.on_prompt_logprobs(first, scored);
  return sequence->state != State::kEnded;  // The owner may have ended it.
}

void EngineCore::Impl::SampleAndDeliver(const Batch::Entry& entry, std::optional<int32_t> chosen, const float* logits) {
  const SamplingState& sampling = entry.sequence->sampling;
  absl::StatusOr<SampledToken> token = SampledToken{.token_id = chosen.value_or(-1)};
  if (!chosen) {
    token = sampler_.Sample(std::span(logits, static_cast<size_t>(model_->config().vocab_size)), sampling);
  } else if (*chosen < 0) {
    token = absl::InternalError(absl::StrCat("a logit at position ", sampling.position(), " is not finite"));
  }
  if (!token.ok()) {
    blocks_.ForgetPrefix(entry.sequence->table.blocks());  // Whatever spoilt it must not spoil others.
    return FailRequest(entry.request, token.status());
  }
  Deliver(entry, *std::move(token));
}

void EngineCore::Impl::Deliver(const Batch::Entry& entry, SampledToken&& token) {
  Sequence* sequence = entry.sequence;
  const SamplingParams& params = sequence->sampling.params();
  TokenEvent event;
  event.choice = entry.request->spec.first_choice + sequence->choice;
  event.index = sequence->sampling.num_generated();
  event.token_id = token.token_id;
  event.logprob = token.logprob;
  event.top = std::move(token.top);

  sequence->tokens.push_back(token.token_id);
  sequence->sampling.Append(token.token_id);
  sequence->progressed = true;
  sequence->recompute = false;
  ++stats_.tokens_generated;
  if (sequence->num_computed % blocks_.block_size() == 0) CacheComputedBlocks(sequence);

  if (sequence->sampling.IsStopToken(token.token_id)) {
    event.finish = FinishReason::kStop;
    event.stop_token_id = token.token_id;
  } else if (sequence->sampling.complete()) {
    event.finish = FinishReason::kComplete;
  } else if (sequence->sampling.num_generated() >= params.max_tokens ||
             static_cast<int>(sequence->tokens.size()) >= context_length_) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) {
    EndSequence(sequence);
    if (--entry.request->num_unfinished == 0) EndRequest(entry.request);
  }
  if (entry.request->sink.on_token) entry.request->sink.on_token(event);
}

}  // namespace baton
