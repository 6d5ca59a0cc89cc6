// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/wire.h"

#include <algorithm>

namespace baton {

SamplingParams SamplingFromProto(const internal::SamplingSpec& proto) {
  SamplingParams params;
  params.temperature = proto.temperature();
  params.top_k = proto.top_k();
  params.top_p = proto.top_p();
  params.min_p = proto.min_p();
  params.seed = proto.seed();
  params.repetition_penalty = proto.repetition_penalty();
  params.presence_penalty = proto.presence_penalty();
  params.frequency_penalty = proto.frequency_penalty();
  const int num_biases = std::min(proto.bias_token_ids_size(), proto.biases_size());
  for (int i = 0; i < num_biases; ++i) params.logit_bias.emplace_back(proto.bias_token_ids(i), proto.biases(i));
  params.num_logprobs = proto.num_logprobs();
  params.max_tokens = proto.max_tokens();
  params.min_tokens = proto.min_tokens();
  params.ignore_eos = proto.ignore_eos();
  params.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  return params;
}

internal::PromptLogprobs PromptLogprobsToProto(int first, const std::vector<SampledToken>& tokens) {
  internal::PromptLogprobs proto;
  proto.set_first(first);
  for (const SampledToken& token : tokens) {
    internal::ScoredToken* const scored = proto.add_tokens();
    scored->set_token_id(token.token_id);
    scored->set_logprob(token.logprob);
    for (const TokenLogprob& entry : token.top) {
      internal::TokenLogprobEntry* const top = scored->add_top();
      top->set_token_id(entry.token_id);
      top->set_logprob(entry.logprob);
    }
  }
  return proto;
}

internal::GeneratedToken TokenToProto(const TokenEvent& token) {
  internal::GeneratedToken proto;
  proto.set_choice(token.choice);
  proto.set_index(token.index);
  proto.set_token_id(token.token_id);
  proto.set_logprob(token.logprob);
  for (const TokenLogprob& entry : token.top) {
    internal::TokenLogprobEntry* top = proto.add_top();
    top->set_token_id(entry.token_id);
    top->set_logprob(entry.logprob);
  }
  switch (token.finish) {
    case FinishReason::kNone:
      proto.set_finish_reason(internal::NOT_FINISHED);
      break;
    case FinishReason::kStop:
      proto.set_finish_reason(internal::STOP);
      break;
    case FinishReason::kLength:
      proto.set_finish_reason(internal::LENGTH);
      break;
    case FinishReason::kComplete:
      proto.set_finish_reason(internal::COMPLETE);
      break;
  }
  return proto;
}

}  // namespace baton
