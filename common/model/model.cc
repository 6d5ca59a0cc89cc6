// SPDX-License-Identifier: Apache-2.0
#include "common/model/model.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"

namespace baton {

LayerShape LayerShapeOf(const ModelConfig& config) {
  LayerShape shape;
  shape.hidden_size = config.hidden_size;
  shape.num_heads = config.num_heads;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.intermediate_size = config.intermediate_size;
  shape.norm_eps = config.rms_norm_eps;
  shape.rope_interleaved = config.rope.interleaved;
  shape.has_qkv_bias = config.qkv_bias;
  shape.has_qk_norm = config.qk_norm;
  return shape;
}

namespace {

// Runs jobs [0, num_jobs) on up to num_threads threads; the first failure by job number is returned.
template <typename Job>
absl::Status RunJobs(int num_jobs, int num_threads, Job&& job) {
  std::vector<absl::Status> statuses(static_cast<size_t>(num_jobs));
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next.fetch_add(1); i < num_jobs; i = next.fetch_add(1)) statuses[static_cast<size_t>(i)] = job(i);
  };
  {
    std::vector<Thread> threads;
    for (int i = 1; i < std::min(num_threads, num_jobs); ++i) threads.emplace_back("pack", work);
    work();
  }
  for (const absl::Status& status : statuses) BATON_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Load(std::shared_ptr<const Checkpoint> checkpoint, Backend* backend,
                                                   const PackOptions& options, int num_threads) {
  std::unique_ptr<Model> model(new Model());
  model->checkpoint_ = std::move(checkpoint);
  model->backend_ = backend;
  model->shape_ = LayerShapeOf(model->config());
  model->inv_freq_ = RopeInverseFrequencies(model->config());
  const int num_layers = model->config().num_layers;
  model->layers_.resize(static_cast<size_t>(num_layers));
  // The head is the biggest job and goes first, so that no thread is left alone with it at the end.
  BATON_RETURN_IF_ERROR(RunJobs(num_layers + 1, num_threads > 0 ? num_threads : NumUsableCpus(), [&](int job) {
    if (job == 0) return model->PackEnds(options);
    return Annotate(model->PackLayer(job - 1, options), absl::StrFormat("layer %d", job - 1));
  }));
  return model;
}

absl::Status Model::PackEnds(const PackOptions& options) {
  PackOptions head_options = options;
  head_options.for_prefill = false;  // Few rows ever need logits.
  BATON_ASSIGN_OR_RETURN(head_, backend_->Pack({&checkpoint_->output(), 1}, head_options));
  BATON_ASSIGN_OR_RETURN(embedding_, backend_->PackTable(checkpoint_->embedding()));
  BATON_ASSIGN_OR_RETURN(final_norm_, backend_->PackVector({&checkpoint_->final_norm(), 1}));
  return absl::OkStatus();
}

absl::Status Model::PackLayer(int layer, const PackOptions& options) {
  const LayerTensors& tensors = checkpoint_->layers()[static_cast<size_t>(layer)];
  LayerWeights& weights = layers_[static_cast<size_t>(layer)];
  const TensorView qkv[] = {tensors.q, tensors.k, tensors.v};
  const TensorView gate_up[] = {tensors.gate, tensors.up};
  BATON_ASSIGN_OR_RETURN(weights.qkv, backend_->Pack(qkv, options));
  BATON_ASSIGN_OR_RETURN(weights.attn_out, backend_->Pack({&tensors.attn_out, 1}, options));
  BATON_ASSIGN_OR_RETURN(weights.gate_up, backend_->Pack(gate_up, options));
  BATON_ASSIGN_OR_RETURN(weights.down, backend_->Pack({&tensors.down, 1}, options));
  BATON_ASSIGN_OR_RETURN(weights.attn_norm, backend_->PackVector({&tensors.attn_norm, 1}));
  BATON_ASSIGN_OR_RETURN(weights.mlp_norm, backend_->PackVector({&tensors.mlp_norm, 1}));
  if (shape_.has_qkv_bias) {
    const TensorView bias[] = {*tensors.q_bias, *tensors.k_bias, *tensors.v_bias};
    BATON_ASSIGN_OR_RETURN(weights.qkv_bias, backend_->PackVector(bias));
  }
  if (shape_.has_qk_norm) {
    BATON_ASSIGN_OR_RETURN(weights.q_norm, backend_->PackVector({&*tensors.q_norm, 1}));
    BATON_ASSIGN_OR_RETURN(weights.k_norm, backend_->PackVector({&*tensors.k_norm, 1}));
  }
  return absl::OkStatus();
}

std::vector<const PackedMatrix*> Model::matrices() const {
  std::vector<const PackedMatrix*> matrices;
  matrices.reserve(4 * layers_.size() + 1);
  for (const LayerWeights& layer : layers_) {
    matrices.insert(matrices.end(), {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.down});
  }
  matrices.push_back(&head_);
  return matrices;
}

size_t Model::weight_bytes() const {
  size_t bytes = 0;
  for (const PackedMatrix* matrix : matrices()) bytes += matrix->bytes;
  return bytes;
}

KvLayout Model::kv_layout(KvDtype dtype, int block_size) const {
  KvLayout layout;
  layout.num_layers = config().num_layers;
  layout.num_kv_heads = config().num_kv_heads;
  layout.head_dim = config().head_dim;
  layout.block_size = block_size;
  layout.dtype = dtype;
  return layout;
}

}  // namespace baton
