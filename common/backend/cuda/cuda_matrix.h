// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_MATRIX_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/backend/cuda/cuda_context.h"
#include "common/format/tensor.h"

namespace baton::cuda {

// In what form a matrix meets its input.
enum class MatrixForm : uint8_t {
  kQuant,  // Integers of 4, 5 or 8 bits with a scale and a minimum per 32 columns, times activations of 8 bits.
  kF16,    // Half precision, by cuBLASLt.
  kBf16,
};

// Consecutive outputs of a matrix that are stored in one form. Pointers are device memory.
struct CudaSegment {
  int64_t out_begin = 0;
  int64_t out = 0;
  MatrixForm form = MatrixForm::kBf16;
  int bits = 0;  // Of kQuant.
  const uint8_t* quants = nullptr;  // As quant_gemv.cu has them; for the other forms the values, [out, in].
  const uint8_t* high = nullptr;
  const uint8_t* scales = nullptr;
  std::shared_ptr<uint8_t[]> memory;
};

// A matrix on the GPU. Files mix types within what is stacked, so it is a list of segments; most have one.
struct CudaMatrix {
  int64_t out = 0;
  int64_t in = 0;
  size_t bytes = 0;
  std::vector<CudaSegment> segments;
  bool Has(MatrixForm form) const;
};

// Packs `parts`, stacked along their rows, from the file's own values. With `keep_quantised` the types with one scale per 32
// columns (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0) stay what they are, exactly; all others, and without it all, become F16 (of F16) or BF16.
// Any thread.
//   INVALID_ARGUMENT    see CheckMatrices (common/backend/packing.h). RESOURCE_EXHAUSTED  names the size.
absl::StatusOr<CudaMatrix> PackCudaMatrix(CudaContext* context, std::span<const TensorView> parts, bool keep_quantised);

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_MATRIX_H_
