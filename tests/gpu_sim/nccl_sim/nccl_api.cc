// SPDX-License-Identifier: Apache-2.0
// NCCL's entry points over SimComm. Declared by NVIDIA's header: a signature that differs does not compile. What is not done here is
// refused, never ignored; a wrong use is a finding beside its error.
#include <cuda.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"
#include "tests/gpu_sim/nccl_sim/nccl_sim.h"
#include "tests/gpu_sim/nccl_sim/sim_comm.h"
#include "tests/gpu_sim/nccl_sim/sim_state.h"

namespace {

using baton::Mutex;
using baton::MutexLock;
using baton::nccl_sim::Op;
using baton::nccl_sim::SetLastError;
using baton::nccl_sim::SimComm;
using baton::nccl_sim::SimState;

constexpr uint64_t kIdMagic = 0x6e63636c2d696431;
struct SimId {
  uint64_t magic = 0;
  uint64_t name = 0;
};
static_assert(sizeof(SimId) <= sizeof(ncclUniqueId));

// The communicators that live. One that was freed stays in memory, so that its address is nobody else's.
struct Registry {
  Mutex mutex;
  std::map<SimComm*, std::shared_ptr<SimComm>> living ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<SimComm>> freed ABSL_GUARDED_BY(mutex);
};
Registry& TheRegistry() {
  static auto* const registry = new Registry;  // Never destroyed: streams may be at work when the process ends.
  return *registry;
}

ncclResult_t Wrong(ncclResult_t result, const std::string& why) {
  SimState::Get().Find(why);
  SetLastError(why);
  return result;
}

std::shared_ptr<SimComm> Find(ncclComm_t comm, const char* call) {
  Registry& registry = TheRegistry();
  {
    MutexLock lock(&registry.mutex);
    const auto found = registry.living.find(reinterpret_cast<SimComm*>(comm));
    if (found != registry.living.end()) return found->second;
  }
  Wrong(ncclInvalidArgument, absl::StrCat(call, ": the communicator was freed, or never was"));
  return nullptr;
}

void Free(const std::shared_ptr<SimComm>& comm) {
  comm->Abort();
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mutex);
  registry.living.erase(comm.get());
  registry.freed.push_back(comm);
  SimState::Get().Count("communicators", -1);
}

ncclResult_t Init(ncclComm_t* out, int num_ranks, const ncclUniqueId& unique, int rank, bool blocking) {
  SimId id;
  std::memcpy(&id, unique.internal, sizeof(id));
  if (id.magic != kIdMagic) return Wrong(ncclInvalidArgument, "the id is not one of ncclGetUniqueId's");
  if (num_ranks < 1 || num_ranks > 2 || rank < 0 || rank >= num_ranks) {
    return Wrong(ncclInvalidArgument, absl::StrCat("rank ", rank, " of ", num_ranks, ": there are communicators of 1 and 2 ranks here"));
  }
  auto comm = std::make_shared<SimComm>(num_ranks, rank, id.name, blocking);
  const ncclResult_t result = comm->Init();
  if (result != ncclSuccess && result != ncclInProgress) return result;
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mutex);
  registry.living[comm.get()] = comm;
  SimState::Get().Count("communicators");
  *out = reinterpret_cast<ncclComm_t>(comm.get());
  return result;
}

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 0;
  }
}

// What a thread has put down since ncclGroupStart.
struct Grouped {
  std::shared_ptr<SimComm> comm;
  CUstream stream;
  Op op;
};
thread_local int group_depth = 0;
thread_local std::vector<Grouped> grouped;

ncclResult_t CheckWithin(const std::vector<Op>& ops) {
  std::vector<size_t> sent, received;
  for (const Op& op : ops) (op.send ? sent : received).push_back(op.bytes);
  if (sent.size() != received.size()) return Wrong(ncclInvalidUsage, "a send to itself without a matching receive in its group");
  if (sent != received) return Wrong(ncclInvalidUsage, "a send to itself and its receive differ in size");
  return ncclSuccess;
}

ncclResult_t SubmitGrouped() {
  std::vector<Grouped> all = std::exchange(grouped, {});
  bool in_progress = false;
  while (!all.empty()) {
    const std::shared_ptr<SimComm> comm = all.front().comm;
    const CUstream stream = all.front().stream;
    std::vector<Op> ops;
    for (const Grouped& one : all) {
      if (one.comm != comm) continue;
      if (one.stream != stream) return Wrong(ncclInvalidUsage, "operations of one communicator in one group on two streams");
      ops.push_back(one.op);
    }
    std::erase_if(all, [&](const Grouped& one) { return one.comm == comm; });
    if (comm->num_ranks() == 1) {
      if (const ncclResult_t checked = CheckWithin(ops); checked != ncclSuccess) return checked;
    }
    in_progress = comm->Submit(std::move(ops), stream) == ncclInProgress || in_progress;
  }
  return in_progress ? ncclInProgress : ncclSuccess;
}

ncclResult_t Add(const char* call, ncclComm_t handle, Op op, size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  const std::shared_ptr<SimComm> comm = Find(handle, call);
  if (comm == nullptr) return ncclInvalidArgument;
  const ncclResult_t state = comm->State();
  if (state == ncclInProgress) return Wrong(ncclInvalidUsage, absl::StrCat(call, ": what was asked of the communicator before is in progress"));
  if (state != ncclSuccess) return state;
  op.bytes = count * BytesOf(type);
  if (BytesOf(type) == 0) return Wrong(ncclInvalidArgument, absl::StrCat(call, ": data type ", static_cast<int>(type)));
  if (peer < 0 || peer >= comm->num_ranks() || (peer == comm->rank() && comm->num_ranks() > 1)) {
    return Wrong(ncclInvalidArgument, absl::StrCat(call, ": rank ", peer, " of ", comm->num_ranks(), " from rank ", comm->rank()));
  }
  if (baton_cuda_sim_is_device(op.buffer, static_cast<int64_t>(op.bytes)) == 0) {
    return Wrong(ncclInvalidArgument, absl::StrCat(call, ": ", op.bytes, " bytes that are not in one allocation of device memory"));
  }
  if (baton_cuda_sim_is_capturing(stream) != 0) return Wrong(ncclInvalidUsage, absl::StrCat(call, ": on a stream that is captured"));
  grouped.push_back({comm, stream, op});
  return group_depth > 0 ? ncclSuccess : SubmitGrouped();
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return baton::nccl_sim::LastError(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const SimId made = {kIdMagic, baton::RandomUint64()};
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, &made, sizeof(made));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank) { return Init(comm, num_ranks, id, rank, true); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config != nullptr && config->size != sizeof(ncclConfig_t)) return Wrong(ncclInvalidArgument, "a config without NCCL_CONFIG_INITIALIZER");
  return Init(comm, num_ranks, id, rank, config == nullptr || config->blocking != 0);
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const auto comm = Find(handle, "ncclCommFinalize");
  return comm == nullptr ? ncclInvalidArgument : comm->Finalize();
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const auto comm = Find(handle, "ncclCommDestroy");
  if (comm == nullptr) return ncclInvalidArgument;
  if (const int outstanding = comm->outstanding(); outstanding > 0) {
    return Wrong(ncclInvalidUsage, absl::StrCat("ncclCommDestroy: ", outstanding, " operations are under way"));
  }
  Free(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  const auto comm = Find(handle, "ncclCommAbort");
  if (comm == nullptr) return ncclInvalidArgument;
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  const auto comm = Find(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) return ncclInvalidArgument;
  *state = comm->State();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  const auto comm = Find(handle, "ncclCommCount");
  if (comm == nullptr) return ncclInvalidArgument;
  *count = comm->num_ranks();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  const auto comm = Find(handle, "ncclCommUserRank");
  if (comm == nullptr) return ncclInvalidArgument;
  *rank = comm->rank();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return Wrong(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --group_depth > 0 ? ncclSuccess : SubmitGrouped();
}
ncclResult_t ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add("ncclSend", comm, {.send = true, .buffer = static_cast<uint8_t*>(const_cast<void*>(buffer))}, count, type, peer, stream);
}
ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return Add("ncclRecv", comm, {.send = false, .buffer = static_cast<uint8_t*>(buffer)}, count, type, peer, stream);
}

__attribute__((visibility("default"))) void baton_nccl_sim_reset() { SimState::Get().Reset(); }
__attribute__((visibility("default"))) int baton_nccl_sim_set(const char* name, int64_t value) { return SimState::Get().Set(name, value); }
__attribute__((visibility("default"))) int64_t baton_nccl_sim_count(const char* name) { return SimState::Get().count(name); }
__attribute__((visibility("default"))) void baton_nccl_sim_findings(char* text, int64_t bytes) {
  if (bytes <= 0) return;
  std::strncpy(text, SimState::Get().findings().c_str(), static_cast<size_t>(bytes));
  text[bytes - 1] = '\0';
}

}  // extern "C"
