// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/nccl_api.h"

#include "absl/strings/str_cat.h"
#include "common/backend/cuda/dynamic_library.h"
#include "common/base/status_macros.h"

namespace baton::cuda {

absl::StatusOr<NcclApi> NcclApi::Load(const std::string& library) {
  auto opened = DynamicLibrary::Open(library);
  if (!opened.ok()) return Annotate(opened.status(), "no NCCL");
  NcclApi api;
#define BATON_NCCL_LOAD(name) \
  if (absl::Status status = opened->Get(#name, &api.name); !status.ok()) return Annotate(status, "no NCCL");
  BATON_NCCL_API(BATON_NCCL_LOAD)
#undef BATON_NCCL_LOAD
  int version = 0;
  const ncclResult_t result = api.ncclGetVersion(&version);
  if (result != ncclSuccess || version / 10000 != NCCL_MAJOR) {
    return absl::FailedPreconditionError(absl::StrCat("no NCCL: ", library, " is version ", version,
                                                      ", this build needs major version ", NCCL_MAJOR));
  }
  return api;
}

absl::Status NcclApi::ToStatus(ncclResult_t result, ncclComm_t comm, absl::string_view doing) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* const text = ncclGetErrorString(result);
  const char* const last = ncclGetLastError(comm);
  std::string message = absl::StrCat(doing, ": ", text != nullptr ? text : "unknown NCCL error", " ", static_cast<int>(result));
  if (last != nullptr && *last != '\0') absl::StrAppend(&message, " (", last, ")");
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  return peer ? absl::UnavailableError(message) : absl::InternalError(message);
}

}  // namespace baton::cuda
