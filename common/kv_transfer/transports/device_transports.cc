// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/transports/device_transports.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"
#include "common/kv_transfer/nccl/nccl_transport.h"

namespace baton {
namespace {

struct Opened {
  Mutex mutex;
  std::string nccl_library ABSL_GUARDED_BY(mutex) = "libnccl.so.2";
  DeviceTransports devices ABSL_GUARDED_BY(mutex);
};

// Never destroyed: links may be ending when the process does.
Opened& TheOpened() {
  static auto* const opened = new Opened;
  return *opened;
}

absl::Status OpenOne(const DeviceTransportOptions& options, const std::string& nccl_library, TransportKind kind, DeviceTransports* devices) {
  if (!options.on_device) return absl::FailedPreconditionError("this worker does not compute on a GPU (--device)");
  if (kind == TransportKind::kCudaIpc) {
    BATON_ASSIGN_OR_RETURN(devices->cuda_ipc, OpenCudaIpc({.cuda_driver = options.cuda_driver}));
  } else {
    BATON_ASSIGN_OR_RETURN(devices->nccl, OpenNccl({.cuda_driver = options.cuda_driver, .nccl_library = nccl_library}));
  }
  return absl::OkStatus();
}

}  // namespace

DeviceTransports OpenedDeviceTransports() {
  MutexLock lock(&TheOpened().mutex);
  return TheOpened().devices;
}

void SetNcclLibrary(const std::string& library) {
  MutexLock lock(&TheOpened().mutex);
  TheOpened().nccl_library = library;
}

absl::Status OpenDeviceTransports(const DeviceTransportOptions& options, std::vector<TransportKind>* kinds) {
  std::string nccl_library;
  {
    MutexLock lock(&TheOpened().mutex);
    nccl_library = TheOpened().nccl_library;
  }
  DeviceTransports devices{.stall_timeout = options.stall_timeout};
  for (const TransportKind kind : std::vector(*kinds)) {
    if (!TransportOf(kind).needs_device) continue;
    const absl::Status opened = OpenOne(options, nccl_library, kind, &devices);
    if (opened.ok()) continue;
    std::erase(*kinds, kind);
    if (kinds->empty()) return Annotate(opened, absl::StrCat("--transport ", TransportName(kind)));
    if (options.on_device) BATON_LOG(WARNING) << "KV transport " << TransportName(kind) << " is left out: " << opened.message();
  }
  MutexLock lock(&TheOpened().mutex);
  TheOpened().devices = std::move(devices);
  return absl::OkStatus();
}

}  // namespace baton
