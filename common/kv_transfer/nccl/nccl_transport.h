// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_NCCL_NCCL_TRANSPORT_H_
#define BATON_COMMON_KV_TRANSFER_NCCL_NCCL_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/kv_receiver.h"

namespace baton {

// KV over NCCL: a link over TCP whose payloads go from GPU to GPU, by a communicator of two ranks that is made at the first frame.
// No header of CUDA or NCCL here: a build without them has these functions too.

struct NcclTransportOptions {
  std::string cuda_driver = "libcuda.so.1";    // Libraries, by file name or path.
  std::string nccl_library = "libnccl.so.2";
  int ordinal = 0;  // Of the GPU.
  int max_communicators = 32;  // Of this process at once. Each takes memory of the GPU; who comes later uses another transport.
};

// The libraries and the GPU, shared by all links of the process.
class NcclRuntime;

//   FAILED_PRECONDITION  this build has no NCCL; no driver, GPU or NCCL here; says which. INTERNAL  what the driver says.
absl::StatusOr<std::shared_ptr<NcclRuntime>> OpenNccl(const NcclTransportOptions& options);

// Listens on a free port of `host`; writers are told `advertised_host` with that port. `directory` outlives the receiver. What is
// announced and does not come for `stall_timeout` ends the link.
//   UNAVAILABLE  cannot listen there.
absl::StatusOr<std::unique_ptr<KvReceiver>> StartNcclKvReceiver(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout,
                                                                const std::string& host, const std::string& advertised_host,
                                                                KvReceiverOptions options, LandingDirectory* directory,
                                                                KvReceiverEvents events);

struct NcclKvLinkOptions {
  std::string address;
  absl::Duration stall_timeout = absl::Seconds(10);
  const KvPool* source = nullptr;  // Cells of it go from the device, where it has them there. Outlives the link. Null: none do.
};
std::unique_ptr<KvLink> MakeNcclKvLink(std::shared_ptr<NcclRuntime> runtime, const NcclKvLinkOptions& options,
                                       KvLink::Events events);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_NCCL_NCCL_TRANSPORT_H_
