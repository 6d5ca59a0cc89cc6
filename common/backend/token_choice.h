// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_TOKEN_CHOICE_H_
#define BATON_COMMON_BACKEND_TOKEN_CHOICE_H_

#include <cstdint>
#include <vector>

namespace baton {

// A token whose logit changes before one is chosen: first the bias is added, then the penalties for what is there already, then the mask.
struct LogitChange {
  int32_t token_id = 0;
  float bias = 0;
  int32_t generated = -1;  // How often it has been generated; 0: it occurs in the prompt only; -1: no penalty applies.
  bool masked = false;     // It cannot be chosen.
};

// How the token of one row of logits is chosen, where the backend does that: the numbers of common/engine's Sampler, in its order.
struct TokenChoice {
  bool by_host = false;  // The row's logits are wanted on the host, and no token: the rest means nothing.
  float scale = 0;       // 1 / temperature; 0: the best token, whatever follows.
  int32_t top_k = 0;     // 0: all.
  double top_p = 1;      // 1: all.
  float min_p = 0;       // Of the best token's probability; 0: all.
  double uniform = 0.5;  // In (0, 1): the row's draw.
  float repetition = 1, frequency = 0, presence = 0;  // Of the penalties.
  std::vector<LogitChange> changes;                   // Every token at most once.
};

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_TOKEN_CHOICE_H_
