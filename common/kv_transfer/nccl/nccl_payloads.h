// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_NCCL_NCCL_PAYLOADS_H_
#define BATON_COMMON_KV_TRANSFER_NCCL_NCCL_PAYLOADS_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/kv_transfer/nccl/nccl_runtime.h"
#include "common/kv_transfer/stream/payload_channel.h"

namespace baton {

// The two ends of a payload channel over an NcclChannel. The invitation is NCCL's unique id.

// Whether the writer makes checksums of whole cells of `source` (may be null), where they lie on the device.
bool SumsCellsOnDevice(const KvPool* source);
// Cells of `source` that lie on the device go from there; everything else through page-locked memory. `source` outlives it; may be null.
std::unique_ptr<PayloadWriter> MakeNcclPayloadWriter(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout, const KvPool* source);
// Into zones of `pool`: whole cells of one on the device are verified and go to their blocks there; everything else by the host.
//   INVALID_ARGUMENT    the invitation is none. RESOURCE_EXHAUSTED  too many communicators.
absl::StatusOr<std::unique_ptr<PayloadReader>> OpenNcclPayloadReader(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout,
                                                                     const KvPool* pool, std::span<const uint8_t> invitation);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_NCCL_NCCL_PAYLOADS_H_
