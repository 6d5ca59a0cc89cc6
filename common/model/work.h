// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_WORK_H_
#define BATON_COMMON_MODEL_WORK_H_

#include <cstdint>

#include "common/kv/kv_layout.h"
#include "common/model/model.h"

namespace baton {

// Query-key pairs of causal attention, per head and layer, of the rows at positions [begin, end) of one sequence: each row sees
// its own position and all before it. A prompt of n tokens has n (n + 1) / 2, the token after it n + 1. Pairs that a kernel
// masks inside a tile are no work and are not counted. 0 <= begin <= end.
constexpr int64_t CausalPairs(int64_t begin, int64_t end) { return (end * (end + 1) - begin * (begin + 1)) / 2; }

// What a model's passes are by definition, whatever a kernel makes of it: the numbers that measured times are held against.
// With P weights in the blocks, h heads of size e, L layers:
//   a prompt of n tokens   F(n) = 2 P n + 4 h e L n (n + 1) / 2 operations (two per multiply-add);
//   a step of B tokens whose contexts have c tokens together   D = weight bytes as stored, head included, + c times the KV
//   bytes per token; and 2 (P + head) B + 4 h e L (pairs) operations.
struct ModelWork {
  double block_weights = 0;           // P: values of the layers' matrices.
  double head_weights = 0;
  double attention_ops_per_pair = 0;  // 4 h e L
  double block_bytes = 0;             // As packed.
  double head_bytes = 0;
  double kv_bytes_per_token = 0;      // Keys and values of all layers.

  double PrefillOps(int64_t tokens, int64_t pairs) const {
    return 2 * block_weights * static_cast<double>(tokens) + attention_ops_per_pair * static_cast<double>(pairs);
  }
  double DecodeOps(int64_t tokens, int64_t pairs) const {
    return PrefillOps(tokens, pairs) + 2 * head_weights * static_cast<double>(tokens);
  }
  // `context_tokens`: tokens whose keys and values the pass reads, over all sequences.
  double PrefillBytes(int64_t context_tokens) const {
    return block_bytes + kv_bytes_per_token * static_cast<double>(context_tokens);
  }
  double DecodeBytes(int64_t context_tokens) const { return PrefillBytes(context_tokens) + head_bytes; }
};

ModelWork WorkOf(const Model& model, const KvLayout& layout);

}  // namespace baton

#endif  // BATON_COMMON_MODEL_WORK_H_
