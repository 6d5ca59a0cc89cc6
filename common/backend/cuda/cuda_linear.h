// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_LINEAR_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_LINEAR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/backend/cuda/cublas_lt_linear.h"
#include "common/backend/cuda/cuda_context.h"
#include "common/backend/cuda/cuda_matrix.h"
#include "common/base/mutex.h"

namespace baton::cuda {

// What happens to rows before they are multiplied.
struct InputNorm {
  const float* weight;  // [in], device memory.
  float eps;
};

// y = W f(x) for matrices of all forms: brings the rows into the form that a segment wants, once per form, and multiplies. A row's
// result depends on the row alone.
//
// Prepare: any thread. All else: the engine's thread.
class CudaLinear {
 public:
  // `cublas_library`: opened when the first matrix needs it. `panel_rows`: see CublasLtLinear.
  CudaLinear(CudaContext* context, std::string cublas_library, int panel_rows)
      : context_(context), cublas_library_(std::move(cublas_library)), panel_rows_(panel_rows) {}

  // What a matrix needs beside the kernels.
  //   CublasLtLinear::Create's errors.
  absl::Status Prepare(const CudaMatrix& matrix);
  // Scratch for inputs of up to max_rows rows of max_in columns. RESOURCE_EXHAUSTED names the size.
  absl::Status Reserve(int max_rows, int64_t max_in);
  // Rows that an output must have room for when `rows` are asked for: whole panels of cuBLASLt's are written.
  int PaddedRows(int rows) const { return (rows + panel_rows_ - 1) / panel_rows_ * panel_rows_; }

  // y[rows, matrix.out] = W norm(x) (without a norm: W x); x [rows, matrix.in] fp32. y has PaddedRows(rows) rows.
  void Run(const CudaMatrix& matrix, const std::optional<InputNorm>& norm, int rows, const float* x, float* y);
  // The same of x = silu(gate) * up; gate_up [rows, 2 matrix.in], gate before up.
  void RunSilu(const CudaMatrix& matrix, int rows, const float* gate_up, float* y);

  // "cuBLASLt 13.0.2", or nothing when no matrix needed it.
  std::string library() const;

 private:
  // Where rows come from.
  struct Source {
    const float* x = nullptr;
    std::optional<InputNorm> norm;
    const float* gate_up = nullptr;  // Instead of x.
  };
  void RunFrom(const Source& source, const CudaMatrix& matrix, int rows, float* y);
  // The rows in fp32, f16 or bf16, in `to` [rows, in].
  void Form(const Source& source, int rows, int64_t in, const char* type, void* to);
  void RunQuant(const CudaMatrix& matrix, const CudaSegment& segment, int rows, float* y);
  void RunHalf(const CudaMatrix& matrix, const CudaSegment& segment, int rows, float* y);

  CudaContext* const context_;
  const std::string cublas_library_;
  const int panel_rows_;
  mutable Mutex mutex_;
  std::unique_ptr<CublasLtLinear> cublas_ ABSL_GUARDED_BY(mutex_);
  CublasLtLinear* multiply_ = nullptr;  // *cublas_, once there.
  int max_rows_ = 0;
  int64_t max_in_ = 0;
  std::shared_ptr<uint8_t[]> floats_, halves_, quants_, scales_;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_LINEAR_H_
