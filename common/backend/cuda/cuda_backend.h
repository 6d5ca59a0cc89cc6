// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_BACKEND_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/backend/backend.h"

namespace baton::cuda {

// Which kernels compute a row. A row's bits must not depend on how many others there are, so a backend has one set for all.
enum class CudaKernels {
  // For few rows: quantised weights as they are, attention by split contexts.
  kDecode,
  // For many: 16-bit weights by cuBLASLt, attention on tensor cores.
  kPrefill,
};

struct CudaBackendOptions {
  std::string driver;
  std::string cublas_library;  // Empty: the one that belongs to the headers of this build.
  int ordinal = 0;
  CudaKernels kernels = CudaKernels::kDecode;
};

// The backend on one GPU. No CUDA header here: a build without the toolkit has this function too.
//   FAILED_PRECONDITION  this build has no CUDA; FindCudaDevice's reasons. INTERNAL  what the driver says.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options);

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_BACKEND_H_
