// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_REFERENCE_BACKEND_H_
#define BATON_COMMON_BACKEND_REFERENCE_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/backend/backend.h"

namespace baton {

// The backend a person can check line by line: weights dequantised to fp32 when packed, every operation a plain loop of
// reference_ops.h. Other backends are tested against it. It serves too, slowly, and uses 4 bytes per weight.
//
// `num_threads` splits the outputs of a matrix multiply and the heads of an attention; each value is computed by one thread in
// one order, so that the bits do not depend on it.
class ReferenceBackend : public Backend {
 public:
  explicit ReferenceBackend(int num_threads) : num_threads_(num_threads) {}

  std::string numerics_id() const override { return "reference-f32/1"; }
  std::string description() const override;
  absl::StatusOr<std::shared_ptr<uint8_t[]>> Allocate(size_t bytes) override;
  absl::Status Reserve(const LayerShape& shape, int max_rows) override { return absl::OkStatus(); }
  absl::StatusOr<PackedMatrix> Pack(std::span<const TensorView> parts, const PackOptions& options) override;
  absl::StatusOr<PackedMatrix> PackTable(const TensorView& table) override;
  absl::StatusOr<std::shared_ptr<const float[]>> PackVector(std::span<const TensorView> parts) override;

  void Embed(const PackedMatrix& table, const StepRows& rows, float* x) override;
  void QkvRope(const LayerShape& shape, const LayerWeights& weights, const StepRows& rows, const float* inv_freq,
               const float* x, float* q, const KvLayerView& kv) override;
  void Attention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv,
                 float* attention) override;
  void AttentionOut(const LayerShape& shape, const LayerWeights& weights, int num_rows, const float* attention,
                    float* x) override;
  void Mlp(const LayerShape& shape, const LayerWeights& weights, int num_rows, float* x) override;
  void Head(const LayerShape& shape, const float* final_norm, const PackedMatrix& head,
            std::span<const int32_t> row_indices, const float* x, float* logits) override;

 private:
  // y[num_rows, w.out] = W x
  void Linear(const PackedMatrix& w, int num_rows, const float* x, float* y);

  // Calls body(begin, end) over pieces of [0, n) on the threads and waits for them.
  void ForRange(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body);

  const int num_threads_;
};

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_REFERENCE_BACKEND_H_
