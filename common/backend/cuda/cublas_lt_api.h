// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUBLAS_LT_API_H_
#define BATON_COMMON_BACKEND_CUDA_CUBLAS_LT_API_H_

#include <cublasLt.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cuda {

#define BATON_CUBLAS_LT_API(X)                                                                       \
  X(cublasLtGetVersion) X(cublasLtGetStatusString) X(cublasLtCreate) X(cublasLtDestroy)              \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)         \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)   \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)

// cuBLASLt as a table, as CudaApi is the driver's. Copyable; valid until the process ends.
struct CublasLtApi {
#define BATON_CUBLAS_LT_MEMBER(name) decltype(&::name) name = nullptr;
  BATON_CUBLAS_LT_API(BATON_CUBLAS_LT_MEMBER)
#undef BATON_CUBLAS_LT_MEMBER

  // "libcublasLt.so." and the major version of the headers: another one's enumerations may differ.
  static std::string DefaultLibrary();

  //   FAILED_PRECONDITION  it cannot be opened, lacks a function, or is of another major version; names all.
  static absl::StatusOr<CublasLtApi> Load(const std::string& library = DefaultLibrary());

  // OK for CUBLAS_STATUS_SUCCESS; RESOURCE_EXHAUSTED where an allocation failed, else INTERNAL.
  absl::Status ToStatus(cublasStatus_t status, absl::string_view doing) const;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUBLAS_LT_API_H_
