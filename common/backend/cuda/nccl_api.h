// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_NCCL_API_H_
#define BATON_COMMON_BACKEND_CUDA_NCCL_API_H_

#include <nccl.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cuda {

#define BATON_NCCL_API(X)                                                                                \
  X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId) X(ncclCommInitRank)     \
  X(ncclCommInitRankConfig) X(ncclCommFinalize)                                                          \
  X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclCommCount) X(ncclCommUserRank)      \
  X(ncclGroupStart) X(ncclGroupEnd) X(ncclSend) X(ncclRecv)

// NCCL as a table, as CudaApi is the driver's. Copyable; valid until the process ends.
struct NcclApi {
#define BATON_NCCL_MEMBER(name) decltype(&::name) name = nullptr;
  BATON_NCCL_API(BATON_NCCL_MEMBER)
#undef BATON_NCCL_MEMBER

  //   FAILED_PRECONDITION  it cannot be opened, lacks a function, or is of another major version; names all.
  static absl::StatusOr<NcclApi> Load(const std::string& library = "libnccl.so.2");

  // OK for ncclSuccess (and ncclInProgress, which is no failure); UNAVAILABLE for what the peer or the network did, else INTERNAL.
  // `comm` may be null; with it the message has NCCL's own last error.
  absl::Status ToStatus(ncclResult_t result, ncclComm_t comm, absl::string_view doing) const;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_NCCL_API_H_
