// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_IPC_API_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_IPC_API_H_

#include <cuda.h>

#include <string>

#include "absl/status/statusor.h"

namespace baton::cuda {

// The driver's entry points for memory of other processes: a table as CudaApi's, apart from it, so that a driver without them computes.
#define BATON_CUDA_IPC_API(X) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle)

struct CudaIpcApi {
#define BATON_CUDA_IPC_MEMBER(name) decltype(&::name) name = nullptr;
  BATON_CUDA_IPC_API(BATON_CUDA_IPC_MEMBER)
#undef BATON_CUDA_IPC_MEMBER

  //   FAILED_PRECONDITION  why `library` cannot be opened, or the function that it lacks.
  static absl::StatusOr<CudaIpcApi> Load(const std::string& library);
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_IPC_API_H_
