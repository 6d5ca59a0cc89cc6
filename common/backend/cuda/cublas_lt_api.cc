// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cublas_lt_api.h"

#include "absl/strings/str_cat.h"
#include "common/backend/cuda/dynamic_library.h"
#include "common/base/status_macros.h"

namespace baton::cuda {

std::string CublasLtApi::DefaultLibrary() { return absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR); }

absl::StatusOr<CublasLtApi> CublasLtApi::Load(const std::string& library) {
  auto opened = DynamicLibrary::Open(library);
  if (!opened.ok()) return Annotate(opened.status(), "no cuBLASLt");
  CublasLtApi api;
#define BATON_CUBLAS_LT_LOAD(name) \
  if (absl::Status status = opened->Get(#name, &api.name); !status.ok()) return Annotate(status, "no cuBLASLt");
  BATON_CUBLAS_LT_API(BATON_CUBLAS_LT_LOAD)
#undef BATON_CUBLAS_LT_LOAD
  const size_t version = api.cublasLtGetVersion();
  if (version / 10000 != CUBLAS_VER_MAJOR) {
    return absl::FailedPreconditionError(absl::StrCat("no cuBLASLt: ", library, " is version ", version,
                                                      ", this build needs major version ", CUBLAS_VER_MAJOR));
  }
  return api;
}

absl::Status CublasLtApi::ToStatus(cublasStatus_t status, absl::string_view doing) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const char* const text = cublasLtGetStatusString(status);
  const std::string message =
      absl::StrCat(doing, ": ", text != nullptr ? text : "unknown cuBLAS status", " ", static_cast<int>(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

}  // namespace baton::cuda
