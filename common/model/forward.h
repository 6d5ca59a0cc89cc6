// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_FORWARD_H_
#define BATON_COMMON_MODEL_FORWARD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/backend/backend.h"
#include "common/kv/kv_pool.h"
#include "common/model/model_config.h"

namespace baton {

class Checkpoint;

// A model whose weights are packed for one backend. Immutable; shared by all steps.
class Model {
 public:
  // Packs every matrix of the checkpoint. Takes seconds on a big model; `cache_dir`, when not empty, holds the packed form.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const Checkpoint& checkpoint, Backend* backend,
                                                     const PackOptions& options);

  const ModelConfig& config() const { return config_; }
  const LayerShape& shape() const { return shape_; }
  Backend* backend() const { return backend_; }
  size_t weight_bytes() const;  // As read by one decode step, head included.

 private:
  friend class ForwardPass;
  Model() = default;
  ModelConfig config_;
  LayerShape shape_;
  Backend* backend_ = nullptr;
  std::vector<LayerWeights> layers_;
  std::vector<float> inv_freq_;
  PackedMatrix embedding_;
  PackedMatrix head_;  // The embedding again where the file ties them.
  std::shared_ptr<const float[]> final_norm_;
};

// The flattened arrays of one step, owned. Built by the engine from a Batch.
struct ModelInput {
  std::vector<int32_t> token_ids, positions, slots;      // [num_rows]
  std::vector<int32_t> query_starts;                     // [num_sequences + 1]
  std::vector<std::vector<int32_t>> block_tables;        // [num_sequences]
  std::vector<int32_t> logit_rows;                       // Rows whose logits are wanted, ascending.
  int num_rows() const { return static_cast<int>(token_ids.size()); }
};

// Buffers of a step, reused between steps: no allocation while serving.
class ForwardBuffers {
 public:
  static absl::StatusOr<std::unique_ptr<ForwardBuffers>> Create(const Model& model, int max_rows, int max_logit_rows);
  int max_rows() const { return max_rows_; }
  int max_logit_rows() const { return max_logit_rows_; }
  const float* logits() const { return logits_; }  // [num logit rows, vocab_size], valid after the pass is done.

 private:
  friend class ForwardPass;
  int max_rows_ = 0;
  int max_logit_rows_ = 0;
  std::shared_ptr<uint8_t[]> memory_;
  float *x_ = nullptr, *q_ = nullptr, *attention_ = nullptr, *logits_ = nullptr;
};

// One step of the model over one input, resumable: each Advance runs one (layer, row panel) unit and returns, so that the
// engine can serve its inbox, or run a decode step with other buffers, in between. Rows of a panel see the KV of earlier
// panels of the same layer, so panels of a layer run in order. Engine thread only.
class ForwardPass {
 public:
  // `input` and the rest outlive the pass.
  ForwardPass(const Model* model, const KvPool* pool, const ModelInput* input, ForwardBuffers* buffers, int panel_rows);

  // Runs the next unit. True while more is left. The embedding belongs to the first unit, the head to the last.
  bool Advance();
  bool done() const { return done_; }

  // Layer whose rows [0, num_rows) are completely written to the KV pool so far: layers_complete() of them.
  int layers_complete() const { return layer_; }

 private:
  void RunPanel(int layer, int row_begin, int row_end);
  const Model* model_;
  const KvPool* pool_;
  const ModelInput* input_;
  ForwardBuffers* buffers_;
  int panel_rows_;
  int layer_ = 0;
  int row_ = 0;
  bool done_ = false;
  std::vector<int32_t> panel_query_starts_;
  std::vector<const int32_t*> panel_block_tables_;
};

}  // namespace baton

#endif  // BATON_COMMON_MODEL_FORWARD_H_
