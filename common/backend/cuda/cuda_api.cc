// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_api.h"

#include "absl/strings/str_cat.h"
#include "common/backend/cuda/dynamic_library.h"
#include "common/base/status_macros.h"

namespace baton::cuda {

#define BATON_CUDA_TEXT_OF(name) #name
#define BATON_CUDA_TEXT(name) BATON_CUDA_TEXT_OF(name)

absl::StatusOr<CudaApi> CudaApi::Load(const std::string& library) {
  auto opened = DynamicLibrary::Open(library);
  if (!opened.ok()) return Annotate(opened.status(), "no CUDA driver");
  CudaApi api;
  api.library = library;
#define BATON_CUDA_LOAD(name) \
  if (absl::Status status = opened->Get(BATON_CUDA_TEXT(name), &api.name); !status.ok()) return Annotate(status, "no CUDA driver");
  BATON_CUDA_API(BATON_CUDA_LOAD)
#undef BATON_CUDA_LOAD
  return api;
}

absl::Status CudaApi::ToStatus(CUresult result, absl::string_view doing) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown CUDA error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
  const std::string message = absl::StrCat(doing, ": ", name, " ", static_cast<int>(result), " (", text, ")");
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(message);
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace baton::cuda
