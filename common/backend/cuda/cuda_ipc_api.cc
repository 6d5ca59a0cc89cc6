// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_ipc_api.h"

#include "common/backend/cuda/dynamic_library.h"
#include "common/base/status_macros.h"

namespace baton::cuda {

#define BATON_CUDA_TEXT_OF(name) #name
#define BATON_CUDA_TEXT(name) BATON_CUDA_TEXT_OF(name)

absl::StatusOr<CudaIpcApi> CudaIpcApi::Load(const std::string& library) {
  BATON_ASSIGN_OR_RETURN(const DynamicLibrary opened, DynamicLibrary::Open(library));
  CudaIpcApi api;
#define BATON_CUDA_LOAD(name) BATON_RETURN_IF_ERROR(opened.Get(BATON_CUDA_TEXT(name), &api.name));
  BATON_CUDA_IPC_API(BATON_CUDA_LOAD)
#undef BATON_CUDA_LOAD
  return api;
}

}  // namespace baton::cuda
