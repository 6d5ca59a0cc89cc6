// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_WIRE_H_
#define BATON_DECODE_WORKER_WIRE_H_

#include "baton/internal/decode.pb.h"
#include "common/engine/engine_core.h"

namespace baton {

// Between the wire's messages and the engine's types.
SamplingParams SamplingFromProto(const internal::SamplingSpec& proto);
internal::GeneratedToken TokenToProto(const TokenEvent& token);
internal::PromptLogprobs PromptLogprobsToProto(int first, const std::vector<SampledToken>& tokens);

}  // namespace baton

#endif  // BATON_DECODE_WORKER_WIRE_H_
