// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUBLAS_LT_LINEAR_H_
#define BATON_COMMON_BACKEND_CUDA_CUBLAS_LT_LINEAR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/backend/cuda/cublas_lt_api.h"
#include "common/backend/cuda/cuda_context.h"

namespace baton::cuda {

// y = x W^T by cuBLASLt: 16-bit operands, sums and results in fp32. Always of the same number of rows, whatever is asked for: the
// library chooses another algorithm, with other bits, for another shape.
class CublasLtLinear {
 public:
  // `panel_rows`: rows of every multiply.
  //   CublasLtApi::Load's errors; INTERNAL, RESOURCE_EXHAUSTED  what the library or the driver says.
  static absl::StatusOr<std::unique_ptr<CublasLtLinear>> Create(CudaContext* context, const std::string& library, int panel_rows);
  ~CublasLtLinear();

  // "13.0.2": of the library.
  std::string version() const;
  int panel_rows() const { return panel_rows_; }

  // y[row, 0..out) of panel_rows() rows; `x` [panel_rows, in] and `weights` [out, in] are fp16, or bf16; rows of y are y_stride apart.
  // Rows of x that nobody wants may hold anything. On the compute stream; errors go to the context's status.
  void Run(const void* weights, bool bf16, int64_t out, int64_t in, const void* x, float* y, int64_t y_stride);

 private:
  // One multiply's descriptions and algorithm.
  struct Plan {
    cublasLtMatmulDesc_t multiply = nullptr;
    cublasLtMatrixLayout_t weights = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    size_t workspace_bytes = 0;
  };
  explicit CublasLtLinear(CudaContext* context, int panel_rows) : context_(context), panel_rows_(panel_rows) {}
  absl::StatusOr<Plan> MakePlan(bool bf16, int64_t out, int64_t in, int64_t y_stride);
  absl::Status FillPlan(Plan* plan, bool bf16, int64_t out, int64_t in, int64_t y_stride);
  void Free(const Plan& plan);

  CudaContext* const context_;
  const int panel_rows_;
  CublasLtApi api_;
  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<uint8_t[]> workspace_;
  std::map<std::tuple<bool, int64_t, int64_t, int64_t>, Plan> plans_;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUBLAS_LT_LINEAR_H_
