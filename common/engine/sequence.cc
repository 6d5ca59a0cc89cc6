// SPDX-License-Identifier: Apache-2.0
#include "common/engine/sequence.h"

#include <utility>

namespace baton {

Sequence::Sequence(Request* request, int choice, std::vector<int32_t> tokens, int block_size)
    : request(request),
      choice(choice),
      order(request->number * kMaxChoices + static_cast<uint64_t>(choice)),
      tokens(std::move(tokens)),
      sampling(&request->spec.sampling, request->spec.first_choice + choice, this->tokens,
               request->spec.num_prompt_tokens),
      chain(request->spec.cache_key, block_size),
      table(block_size) {}

}  // namespace baton
