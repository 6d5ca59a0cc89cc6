// SPDX-License-Identifier: Apache-2.0
// Pools in memory that two processes map.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/kv/kv_pool.h"

namespace baton {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A reader's vector loads may go a little past the end.
size_t MappedBytes(const KvLayout& layout, int num_blocks) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (layout.block_bytes() * static_cast<size_t>(num_blocks) + 64 + page - 1) / page * page;
}

absl::StatusOr<std::shared_ptr<uint8_t[]>> Map(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrFormat("cannot map %d bytes of shared memory: %s", bytes, strerror(errno)));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // A wish: for shared memory most systems say no.
  return std::shared_ptr<uint8_t[]>(static_cast<uint8_t*>(memory), [bytes](uint8_t* p) { munmap(p, bytes); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::CreateShared(const KvLayout& layout, int num_blocks, Backend* backend) {
  BATON_RETURN_IF_ERROR(CheckSize(layout, num_blocks));
  const size_t bytes = MappedBytes(layout, num_blocks);
  const int fd = memfd_create("baton-kv-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return absl::UnavailableError(absl::StrFormat("memfd_create: %s", strerror(errno)));
  const auto failed = [fd](const char* what) {
    const int error = errno;
    close(fd);
    return absl::UnavailableError(absl::StrFormat("%s of a memfd: %s", what, strerror(error)));
  };
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) return failed("sealing");
  auto memory = Map(fd, bytes);
  if (!memory.ok()) {
    close(fd);
    return memory.status();
  }
  auto pool = std::unique_ptr<KvPool>(new KvPool(layout, num_blocks, *std::move(memory)));
  pool->shared_fd_ = fd;
  BATON_RETURN_IF_ERROR(pool->AllocateDevice(backend));
  return pool;
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::MapShared(const KvLayout& layout, int num_blocks, int fd) {
  BATON_RETURN_IF_ERROR(CheckSize(layout, num_blocks));
  const size_t bytes = MappedBytes(layout, num_blocks);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    return absl::FailedPreconditionError("shared kv pool: the memory is not sealed, its owner could cut it");
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || static_cast<size_t>(info.st_size) != bytes) {
    return absl::FailedPreconditionError(absl::StrFormat("shared kv pool: the memory has %d bytes, %d blocks of %s take %d",
                                                         static_cast<int64_t>(info.st_size), num_blocks,
                                                         layout.fingerprint(), bytes));
  }
  BATON_ASSIGN_OR_RETURN(auto memory, Map(fd, bytes));
  return std::unique_ptr<KvPool>(new KvPool(layout, num_blocks, std::move(memory)));
}

}  // namespace baton
