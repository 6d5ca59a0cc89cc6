// SPDX-License-Identifier: Apache-2.0
#include "common/model/work.h"

namespace baton {

ModelWork WorkOf(const Model& model, const KvLayout& layout) {
  ModelWork work;
  for (const LayerWeights& layer : model.layers()) {
    for (const PackedMatrix* matrix : {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.down}) {
      work.block_weights += static_cast<double>(matrix->out) * static_cast<double>(matrix->in);
      work.block_bytes += static_cast<double>(matrix->bytes);
    }
  }
  work.head_weights = static_cast<double>(model.head().out) * static_cast<double>(model.head().in);
  work.head_bytes = static_cast<double>(model.head().bytes);
  const ModelConfig& config = model.config();
  work.attention_ops_per_pair = 4.0 * config.num_heads * config.head_dim * config.num_layers;
  work.kv_bytes_per_token = static_cast<double>(layout.block_bytes()) / layout.block_size;
  return work;
}

}  // namespace baton
