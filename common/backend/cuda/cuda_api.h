// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_API_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_API_H_

#include <cuda.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cuda {

// Every entry point of the driver that Baton calls. The header's macros turn a name into the versioned symbol (cuMemAlloc into
// cuMemAlloc_v2), in the type, the member and the symbol looked up alike, so that the three cannot disagree.
#define BATON_CUDA_API(X)                                                                                             \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                               \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceTotalMem) X(cuDeviceGetAttribute)                   \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxSynchronize)                     \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost)                                       \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8Async) X(cuMemsetD32Async)               \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute)            \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent)                   \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime)     \
  X(cuLaunchKernel) X(cuLaunchHostFunc)                                                                               \
  X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy)

// The driver API as a table. Copyable; valid until the process ends. Members have the functions' own names.
struct CudaApi {
#define BATON_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  BATON_CUDA_API(BATON_CUDA_MEMBER)
#undef BATON_CUDA_MEMBER
  std::string library;

  // Fills the table from `library`; initialises nothing.
  //   FAILED_PRECONDITION  "no CUDA driver: " and why it cannot be opened, or the function that it lacks.
  static absl::StatusOr<CudaApi> Load(const std::string& library = "libcuda.so.1");

  // OK for CUDA_SUCCESS; else "`doing`: CUDA_ERROR_NAME (text)": RESOURCE_EXHAUSTED out of memory, FAILED_PRECONDITION no device or
  // an unfit driver, INTERNAL all else (a context with such an error is lost).
  absl::Status ToStatus(CUresult result, absl::string_view doing) const;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_API_H_
