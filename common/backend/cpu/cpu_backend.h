// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_CPU_BACKEND_H_
#define BATON_COMMON_BACKEND_CPU_CPU_BACKEND_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "common/backend/cpu/attention_runner.h"
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/linear.h"
#include "common/backend/cpu/matrix.h"
#include "common/backend/cpu/pack_cache.h"
#include "common/backend/cpu/rope_table.h"
#include "common/backend/cpu/thread_pool.h"

namespace baton {

// Who multiplies the matrices of a layer.
enum class CpuMatmul : uint8_t {
  kInt8,        // The kernels of this folder, on the file's own quantised values.
  kOneDnnBf16,  // oneDNN on weights rounded to bf16, in panels of 64 rows: for workers that prefill only.
  kOneDnnF32,
};

// How the input of each quantised matrix is rounded; README.md has the measurements behind the defaults.
struct CpuPrecision {
  cpu::Terms qkv = cpu::Terms::kOutliers;
  cpu::Terms attn_out = cpu::Terms::kOutliers;
  cpu::Terms gate_up = cpu::Terms::kOutliers;
  cpu::Terms down = cpu::Terms::kOutliers;
  cpu::Terms head = cpu::Terms::kOutliers;

  static CpuPrecision All(cpu::Terms terms) { return {terms, terms, terms, terms, terms}; }
};

// The path that serves on a CPU: weights stay in the file's own quantised values and are multiplied by integers, everything
// else is fp32; attention is blocked with a running soft-max. Composes the kernels of one instruction set over a pool of
// compute threads. One thread at a time, except for Pack, PackTable and PackVector (any thread, concurrently).
class CpuBackend : public Backend {
 public:
  // `kernels` is one of cpu::FindKernels; num_threads >= 1, the caller included; `pack_cache` keeps packed weights, or is null.
  CpuBackend(const cpu::Kernels* kernels, int num_threads, const CpuPrecision& precision, CpuMatmul matmul,
             std::unique_ptr<cpu::PackCache> pack_cache);

  std::string numerics_id() const override;
  std::string description() const override;
  MachinePeaks MeasurePeaks(std::span<const PackedMatrix* const> weights) override;
  absl::StatusOr<std::shared_ptr<uint8_t[]>> Allocate(size_t bytes) override;
  absl::Status Reserve(const LayerShape& shape, int max_rows) override;
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
  // Pointers to the rotary table's rows of `rows`, in rope_rows_.
  void LookUpRope(const LayerShape& shape, const StepRows& rows, const float* inv_freq);

  const cpu::Kernels& kernels_;
  const CpuPrecision precision_;
  const CpuMatmul matmul_;
  const std::unique_ptr<cpu::PackCache> pack_cache_;
  std::atomic<size_t> slice_scratch_bytes_{0};  // The most that any packed matrix wants per thread.
  cpu::ThreadPool pool_;
  cpu::LinearRunner linear_;
  cpu::AttentionRunner attention_;
  std::vector<std::unique_ptr<cpu::RopeTable>> rope_tables_;  // One per model and head size ever seen.
  std::vector<const float*> rope_rows_;
  std::shared_ptr<uint8_t[]> scratch_;  // One panel's q, k and v together, its MLP's middle, or the rows before the head.
  size_t scratch_bytes_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_CPU_CPU_BACKEND_H_
