// SPDX-License-Identifier: Apache-2.0
// For builds without NVIDIA's headers.
#include "common/base/logging.h"
#include "common/kv_transfer/nccl/nccl_transport.h"

namespace baton {

absl::StatusOr<std::shared_ptr<NcclRuntime>> OpenNccl(const NcclTransportOptions&) {
  return absl::FailedPreconditionError("this build has no NCCL");
}

absl::StatusOr<std::unique_ptr<KvReceiver>> StartNcclKvReceiver(std::shared_ptr<NcclRuntime>, absl::Duration, const std::string&,
                                                                const std::string&, KvReceiverOptions, LandingDirectory*,
                                                                KvReceiverEvents) {
  return absl::FailedPreconditionError("this build has no NCCL");
}

std::unique_ptr<KvLink> MakeNcclKvLink(std::shared_ptr<NcclRuntime>, const NcclKvLinkOptions& options, KvLink::Events) {
  BATON_CHECK(false) << "no KV link by nccl to " << options.address << ": this build has no NCCL";
  return nullptr;
}

}  // namespace baton
