// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_MODEL_H_
#define BATON_COMMON_MODEL_MODEL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/backend/backend.h"
#include "common/kv/kv_layout.h"
#include "common/model/checkpoint.h"
#include "common/model/model_config.h"

namespace baton {

// What a backend is told of a model's layers.
LayerShape LayerShapeOf(const ModelConfig& config);

// A checkpoint whose weights are packed for one backend. Immutable; shared by all steps. Keeps the checkpoint: a backend on the
// host reads embedding rows from the file's own mapping.
class Model {
 public:
  // Packs every matrix, several at a time on up to `num_threads` threads (0: all that this process may use). `backend`
  // outlives the model.
  //   whatever Backend::Pack returns, with the tensor's layer before it.
  static absl::StatusOr<std::unique_ptr<Model>> Load(std::shared_ptr<const Checkpoint> checkpoint, Backend* backend,
                                                     const PackOptions& options = {}, int num_threads = 0);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const ModelConfig& config() const { return checkpoint_->config(); }
  const std::string& fingerprint() const { return checkpoint_->fingerprint(); }
  const LayerShape& shape() const { return shape_; }
  Backend* backend() const { return backend_; }

  // Of every matrix, head included: what one decode step reads.
  size_t weight_bytes() const;
  // Those matrices.
  std::vector<const PackedMatrix*> matrices() const;

  // The layout of a KV pool for this model.
  KvLayout kv_layout(KvDtype dtype, int block_size) const;

  const PackedMatrix& embedding() const { return embedding_; }
  std::span<const LayerWeights> layers() const { return layers_; }
  const std::vector<float>& inv_freq() const { return inv_freq_; }
  const float* final_norm() const { return final_norm_.get(); }
  const PackedMatrix& head() const { return head_; }

 private:
  Model() = default;
  absl::Status PackLayer(int layer, const PackOptions& options);
  absl::Status PackEnds(const PackOptions& options);

  std::shared_ptr<const Checkpoint> checkpoint_;
  LayerShape shape_;
  Backend* backend_ = nullptr;
  std::vector<LayerWeights> layers_;
  std::vector<float> inv_freq_;
  PackedMatrix embedding_;
  PackedMatrix head_;
  std::shared_ptr<const float[]> final_norm_;
};

}  // namespace baton

#endif  // BATON_COMMON_MODEL_MODEL_H_
