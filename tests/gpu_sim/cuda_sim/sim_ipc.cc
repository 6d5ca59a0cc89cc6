// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/cuda_sim/sim_ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"

namespace baton::cuda_sim {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kMagic = 0x6d697361747562a1;
constexpr absl::Duration kLook = absl::Milliseconds(10);

// In CUipcMemHandle.
struct Handle {
  uint64_t magic = kMagic;
  int64_t process = 0;
  uint64_t serial = 0, bytes = 0;
  int64_t fd = -1;
  uint64_t sum = 0;  // Of all that is before it.
  uint64_t Sum() const { return magic * 31 + static_cast<uint64_t>(process) * 37 + serial * 41 + bytes * 43 + static_cast<uint64_t>(fd) * 47; }
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle));

// Behind the data.
struct OpenTable {
  std::atomic<int64_t> processes[64];
};

std::string NameOf(int64_t process, uint64_t serial) { return absl::StrCat("baton-gpu-", process, "-", serial); }
size_t MappedBytes(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

const std::set<std::string>& Failures() {
  static const auto* const names = new std::set<std::string>{"no_ipc", "fail_ipc_open", "stall_peer_copy", "kill_peer_copy", "flip_peer_copy"};
  return *names;
}

void* MapTable(int fd, size_t mapped) {
  void* const table = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(mapped));
  return table == MAP_FAILED ? nullptr : table;
}

void Replace(void* table, int64_t from, int64_t to) {
  if (table == nullptr) return;
  for (std::atomic<int64_t>& slot : static_cast<OpenTable*>(table)->processes) {
    int64_t expected = from;
    if (slot.compare_exchange_strong(expected, to)) return;
  }
}

}  // namespace

// ---- The process whose memory it is.

CUresult SimIpc::Export(void* base, size_t bytes, CUipcMemHandle* handle) {
  MutexLock lock(&mutex_);
  if (Due("no_ipc")) return CUDA_ERROR_NOT_SUPPORTED;
  auto found = shared_.find(base);
  if (found == shared_.end()) {
    Shared made{.bytes = bytes, .mapped = MappedBytes(bytes), .serial = next_serial_++, .process = getpid()};
    made.fd = memfd_create(NameOf(made.process, made.serial).c_str(), MFD_CLOEXEC);
    if (made.fd < 0 || ftruncate(made.fd, static_cast<off_t>(made.mapped + kPage)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t written = 0; written < made.mapped;) {
      const ssize_t part = pwrite(made.fd, static_cast<const char*>(base) + written, made.mapped - written, static_cast<off_t>(written));
      if (part <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
      written += static_cast<size_t>(part);
    }
    if (mmap(base, made.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, made.fd, 0) == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
    made.table = MapTable(made.fd, made.mapped);
    found = shared_.emplace(base, made).first;
  }
  const Shared& shared = found->second;
  Handle told{.process = shared.process, .serial = shared.serial, .bytes = shared.bytes, .fd = shared.fd};
  told.sum = told.Sum();
  *handle = {};
  std::memcpy(handle, &told, sizeof(told));
  return CUDA_SUCCESS;
}

void SimIpc::Forget(void* base) {
  MutexLock lock(&mutex_);
  const auto found = shared_.find(base);
  if (found == shared_.end()) return;
  const Shared& shared = found->second;
  if (shared.table != nullptr) {
    for (const std::atomic<int64_t>& slot : static_cast<OpenTable*>(shared.table)->processes) {
      const int64_t process = slot.load();
      // A process that was killed has closed it, too.
      if (process != 0 && kill(static_cast<pid_t>(process), 0) == 0) find_("memory was freed that another process has open");
    }
    munmap(shared.table, kPage);
  }
  close(shared.fd);
  shared_.erase(found);
}

// ---- Another one.

CUresult SimIpc::Open(const CUipcMemHandle& handle, unsigned flags, void** base, size_t* bytes, bool* fresh) {
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Handle told;
  std::memcpy(&told, &handle, sizeof(told));
  MutexLock lock(&mutex_);
  if (told.magic != kMagic || told.sum != told.Sum()) {
    find_("a handle was opened that is none");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (Due("fail_ipc_open")) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (told.process == getpid()) {
    find_("a process opened its own handle");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  for (auto& [address, shared] : shared_) {
    if (shared.process != told.process || shared.serial != told.serial) continue;
    ++shared.num_opens;
    *base = const_cast<void*>(address);
    *bytes = shared.bytes;
    *fresh = false;
    return CUDA_SUCCESS;
  }
  const std::string path = absl::StrCat("/proc/", told.process, "/fd/", told.fd);
  char target[256] = {};
  const ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (length < 0 || fd < 0 || std::string(target).find(NameOf(told.process, told.serial) + " ") == std::string::npos) {
    if (fd >= 0) close(fd);
    find_("a handle was opened of memory that is freed, or of a process that has ended");
    return CUDA_ERROR_MAP_FAILED;
  }
  Shared opened{.bytes = told.bytes, .mapped = MappedBytes(told.bytes), .fd = fd, .serial = told.serial, .process = told.process, .num_opens = 1};
  void* const memory = mmap(nullptr, opened.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  opened.table = MapTable(fd, opened.mapped);
  Replace(opened.table, 0, getpid());
  shared_.emplace(memory, opened);
  ++opens_;
  *base = memory;
  *bytes = opened.bytes;
  *fresh = true;
  return CUDA_SUCCESS;
}

CUresult SimIpc::Close(void* base, const std::function<void()>& unmap) {
  MutexLock lock(&mutex_);
  const auto found = shared_.find(base);
  if (found == shared_.end() || found->second.num_opens == 0) {
    find_("memory was closed that is not open");
    return CUDA_ERROR_INVALID_VALUE;
  }
  Shared& shared = found->second;
  if (shared.at_work->load() > 0) find_("memory was closed while a copy to or from it was under way");
  if (--shared.num_opens > 0) return CUDA_SUCCESS;
  while (shared.at_work->load() > 0) changed_.WaitFor(&mutex_, kLook);
  unmap();
  Replace(shared.table, getpid(), 0);
  munmap(base, shared.mapped);
  if (shared.table != nullptr) munmap(shared.table, kPage);
  close(shared.fd);
  shared_.erase(base);
  return CUDA_SUCCESS;
}

bool SimIpc::IsOpened(const void* base) const {
  MutexLock lock(&mutex_);
  const auto found = shared_.find(base);
  return found != shared_.end() && found->second.num_opens > 0;
}

// ---- Work.

const SimIpc::Shared* SimIpc::FindLocked(const void* address) const {
  auto after = shared_.upper_bound(address);
  if (after == shared_.begin()) return nullptr;
  const auto& [base, shared] = *--after;
  return static_cast<const char*>(address) < static_cast<const char*>(base) + shared.bytes ? &shared : nullptr;
}

std::shared_ptr<void> SimIpc::Hold(const void* address) const {
  MutexLock lock(&mutex_);
  const Shared* const shared = FindLocked(address);
  if (shared == nullptr || shared->num_opens == 0) return nullptr;
  ++*shared->at_work;
  return std::shared_ptr<void>(nullptr, [at_work = shared->at_work](void*) { --*at_work; });
}

void SimIpc::Copy(void* to, const void* from, size_t bytes) {
  bool flip = false;
  {
    MutexLock lock(&mutex_);
    const Shared* const shared = FindLocked(to);
    // By a plan, which every process reads, it does not happen to the one whose memory it is.
    if (shared != nullptr && (shared->num_opens > 0 || plan_.empty())) {
      ++copies_;
      if (Due("kill_peer_copy")) {
        std::memcpy(to, from, bytes / 2);
        kill(getpid(), SIGKILL);
      }
      if (Due("stall_peer_copy")) {
        due_["stalled"] = 1;
        while (due_["stalled"] != 0) changed_.WaitFor(&mutex_, kLook);
      }
      flip = Due("flip_peer_copy");
    }
  }
  std::memcpy(to, from, bytes);
  if (flip) static_cast<uint8_t*>(to)[bytes / 2] ^= 4;
}

// ---- What tests order.

bool SimIpc::Set(const std::string& name, int64_t value) {
  if (Failures().count(name) == 0) return false;
  MutexLock lock(&mutex_);
  due_[name] = value;
  if (name == "stall_peer_copy" && value == 0) due_["stalled"] = 0;
  changed_.NotifyAll();
  return true;
}

void SimIpc::Reset() {
  MutexLock lock(&mutex_);
  due_.clear();
  opens_ = copies_ = 0;
  changed_.NotifyAll();
}

int64_t SimIpc::count(const std::string& name) const {
  MutexLock lock(&mutex_);
  if (name == "ipc_opens") return opens_;
  if (name == "peer_copies") return copies_;
  if (name == "stalled_peer_copies") return due_.count("stalled") > 0 ? due_.at("stalled") : 0;
  if (name != "ipc_open") return -1;
  int64_t open = 0;
  for (const auto& [address, shared] : shared_) open += shared.num_opens;
  return open;
}

// Every process reads it; the one that comes to grief takes it away, so that whoever replaces it works.
void SimIpc::TakePlan(const char* path) {
  std::ifstream in(path);
  std::string name;
  int64_t value = 0;
  while (in >> name >> value) Set(name, value);
  MutexLock lock(&mutex_);
  plan_ = path;
}

bool SimIpc::Due(const std::string& name) {
  const auto found = due_.find(name);
  if (found == due_.end() || found->second <= 0) return false;
  if (name == "no_ipc") return true;
  if (--found->second > 0) return false;
  if (!plan_.empty()) std::remove(plan_.c_str());
  return true;
}

}  // namespace baton::cuda_sim
