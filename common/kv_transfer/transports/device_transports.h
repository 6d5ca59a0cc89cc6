// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSPORTS_DEVICE_TRANSPORTS_H_
#define BATON_COMMON_KV_TRANSFER_TRANSPORTS_DEVICE_TRANSPORTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/kv_transfer/transport_kind.h"

namespace baton {

class CudaIpcRuntime;
class NcclRuntime;

// What the transports that move device memory need. There is one for the process, as there is one context of the driver: links and
// receivers are made with what was opened last. Null: that kind cannot be used. Thread-safe.
struct DeviceTransports {
  std::shared_ptr<CudaIpcRuntime> cuda_ipc;
  std::shared_ptr<NcclRuntime> nccl;
  absl::Duration stall_timeout = absl::Seconds(10);  // Of receivers: what is announced and does not come for so long has stalled.
};
DeviceTransports OpenedDeviceTransports();

struct DeviceTransportOptions {
  bool on_device = false;  // This process computes on a GPU.
  std::string cuda_driver = "libcuda.so.1";  // By file name or path.
  absl::Duration stall_timeout = absl::Seconds(10);
};

// The library of NCCL, by file name or path; libnccl.so.2 where nothing is said. Before OpenDeviceTransports.
void SetNcclLibrary(const std::string& library);

// Opens what those of `kinds` need that move device memory. A kind that cannot be had is taken out of `kinds`, with a line in the log
// where this process has a GPU.
//   FAILED_PRECONDITION  and others: there is no kind left; says why the last one was taken out.
absl::Status OpenDeviceTransports(const DeviceTransportOptions& options, std::vector<TransportKind>* kinds);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSPORTS_DEVICE_TRANSPORTS_H_
