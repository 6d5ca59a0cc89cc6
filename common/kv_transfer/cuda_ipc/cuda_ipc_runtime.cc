// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/cuda_ipc/cuda_ipc_runtime.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/backend/cuda/cuda_device.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// In Welcome, as it lies in memory: both ends are on one machine.
struct Exported {
  uint64_t process = 0;  // Its incarnation.
  uint64_t address = 0;  // There.
  uint64_t bytes = 0;
  CUipcMemHandle handle = {};
};

}  // namespace

CUdeviceptr DeviceAddressOf(const KvPool& pool) { return reinterpret_cast<CUdeviceptr>(pool.DeviceMemory()); }

absl::StatusOr<std::shared_ptr<CudaIpcRuntime>> CudaIpcRuntime::Open(const CudaIpcOptions& options) {
  std::shared_ptr<CudaIpcRuntime> runtime(new CudaIpcRuntime(options));
  BATON_RETURN_IF_ERROR(runtime->Start());
  return runtime;
}

// Whether memory can be exported here, which not every GPU and container allows, is told by doing it.
absl::Status CudaIpcRuntime::Start() {
  BATON_ASSIGN_OR_RETURN(const cuda::CudaDevice device, cuda::FindCudaDevice(options_.cuda_driver, options_.ordinal));
  BATON_ASSIGN_OR_RETURN(cuda_, cuda::CudaApi::Load(options_.cuda_driver));
  BATON_ASSIGN_OR_RETURN(ipc_, cuda::CudaIpcApi::Load(options_.cuda_driver));
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(cuda_.cuDeviceGet(&device_, options_.ordinal), "cuDeviceGet"));
  // The one that the backend computes in.
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(cuda_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  BATON_RETURN_IF_ERROR(Bind());
  BATON_ASSIGN_OR_RETURN(checksum_kernel_, cuda::ChecksumKernel::Load(cuda_, device.compute_capability));
  CUdeviceptr trial = 0;
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(cuda_.cuMemAlloc(&trial, 4096), "cuMemAlloc"));
  CUipcMemHandle handle = {};
  const absl::Status exported = cuda_.ToStatus(ipc_.cuIpcGetMemHandle(&handle, trial), "cuIpcGetMemHandle");
  cuda_.cuMemFree(trial);
  if (exported.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this GPU's memory cannot be opened by other processes: ", exported.message()));
}

CudaIpcRuntime::~CudaIpcRuntime() {
  if (context_ == nullptr) return;
  if (Bind().ok()) {
    MutexLock lock(&mutex_);
    unused_checksums_.clear();
    checksum_kernel_.reset();
  }
  cuda_.cuDevicePrimaryCtxRelease(device_);
}

absl::Status CudaIpcRuntime::Bind() const { return cuda_.ToStatus(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

absl::StatusOr<std::string> CudaIpcRuntime::Export(const KvPool& pool) const {
  Exported exported{.process = ProcessIncarnation(), .address = DeviceAddressOf(pool), .bytes = pool.bytes()};
  if (exported.address == 0) return absl::FailedPreconditionError("the KV pool is not on a device");
  BATON_RETURN_IF_ERROR(Bind());
  BATON_RETURN_IF_ERROR(cuda_.ToStatus(ipc_.cuIpcGetMemHandle(&exported.handle, exported.address), "cuIpcGetMemHandle of the KV pool"));
  return std::string(reinterpret_cast<const char*>(&exported), sizeof(exported));
}

absl::StatusOr<PeerMemory> CudaIpcRuntime::Import(absl::string_view exported, size_t bytes) const {
  Exported from;
  if (exported.size() != sizeof(from)) {
    return absl::InvalidArgumentError(absl::StrCat("device memory is named by ", exported.size(), " bytes, not ", sizeof(from)));
  }
  std::memcpy(&from, exported.data(), sizeof(from));
  if (from.bytes < bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the receiver exports ", from.bytes, " bytes of device memory, its pool has ", bytes));
  }
  if (from.process == ProcessIncarnation()) return PeerMemory{.address = static_cast<CUdeviceptr>(from.address)};
  BATON_RETURN_IF_ERROR(Bind());
  PeerMemory memory{.opened = true};
  // Also from another GPU, where the two can reach each other.
  const CUresult opened = ipc_.cuIpcOpenMemHandle(&memory.address, from.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (opened == CUDA_SUCCESS) return memory;
  return absl::UnavailableError(cuda_.ToStatus(opened, "cuIpcOpenMemHandle of the receiver's KV pool").message());
}

void CudaIpcRuntime::Close(const PeerMemory& memory) const {
  if (!memory.opened || !Bind().ok()) return;
  const absl::Status closed = cuda_.ToStatus(ipc_.cuIpcCloseMemHandle(memory.address), "cuIpcCloseMemHandle");
  if (!closed.ok()) BATON_LOG(WARNING) << closed.message();
}

absl::StatusOr<std::unique_ptr<cuda::DeviceChecksums>> CudaIpcRuntime::TakeChecksums() {
  {
    MutexLock lock(&mutex_);
    if (!unused_checksums_.empty()) {
      auto taken = std::move(unused_checksums_.back());
      unused_checksums_.pop_back();
      return taken;
    }
  }
  BATON_RETURN_IF_ERROR(Bind());
  auto made = cuda::DeviceChecksums::Create(checksum_kernel_.get());
  if (!made.ok()) return absl::UnavailableError(made.status().message());
  return made;
}

void CudaIpcRuntime::GiveBack(std::unique_ptr<cuda::DeviceChecksums> checksums) {
  if (checksums == nullptr) return;
  checksums->Clear();
  MutexLock lock(&mutex_);
  unused_checksums_.push_back(std::move(checksums));  // No more than were at work at once: a few per link.
}

void CudaIpcRuntime::LeaveBehind(std::function<bool()> try_end) {
  MutexLock lock(&mutex_);
  left_behind_.push_back(std::move(try_end));
}

bool CudaIpcRuntime::AllEnded() {
  std::vector<std::function<bool()>> ended;  // What they hold comes back here when they go: without the lock.
  MutexLock lock(&mutex_);
  for (auto it = left_behind_.begin(); it != left_behind_.end();) {
    if (!(*it)()) {
      ++it;
      continue;
    }
    ended.push_back(std::move(*it));
    it = left_behind_.erase(it);
  }
  return left_behind_.empty();
}

}  // namespace baton
