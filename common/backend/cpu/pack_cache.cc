// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/pack_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "xxhash.h"

namespace baton::cpu {
namespace {

namespace fs = std::filesystem;

// Part of every key: a new one whenever the packed form changes.
constexpr absl::string_view kVersion = "baton-pack/1";
constexpr absl::string_view kSuffix = ".pack";
constexpr absl::string_view kWriting = ".writing";
constexpr char kMagic[16] = "baton packed 1\n";
constexpr size_t kHeaderBytes = 4096;  // The payload begins on a page.
constexpr size_t kTailBytes = 64;      // Kernels load whole vectors, also at the end.
constexpr auto kAbandonedAfter = std::chrono::hours(1);

struct Header {
  char magic[16];
  uint64_t payload_bytes;
  uint64_t payload_hash;  // XXH3
  uint64_t name_hash;     // XXH3 of the key: a file that was renamed is not taken for another matrix.
};

Header HeaderOf(const std::string& key, std::span<const uint8_t> payload) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.payload_bytes = payload.size();
  header.payload_hash = XXH3_64bits(payload.data(), payload.size());
  header.name_hash = XXH3_64bits(key.data(), key.size());
  return header;
}

void Update(XXH3_state_t* state, absl::string_view text) {
  const uint64_t size = text.size();
  XXH3_128bits_update(state, &size, sizeof(size));
  XXH3_128bits_update(state, text.data(), text.size());
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

bool WriteAll(int fd, const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(fd, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// Header, padding to a page, payload, tail. Reserves first, so that a full disk shows before anything is written.
bool WriteFile(int fd, const Header& header, std::span<const uint8_t> payload) {
  const size_t size = kHeaderBytes + payload.size() + kTailBytes;
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(size)); error != 0) {
    errno = error;
    return false;
  }
  std::vector<uint8_t> page(kHeaderBytes, 0);
  std::memcpy(page.data(), &header, sizeof(header));
  return WriteAll(fd, page.data(), page.size()) && WriteAll(fd, payload.data(), payload.size());
}

struct KeptFile {
  fs::path path;
  uint64_t bytes;
  fs::file_time_type used;
};

// The folder's files; what a writer left behind when it was killed is removed.
std::vector<KeptFile> ListFiles(const std::string& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const uint64_t bytes = it->file_size(ignored);
    if (ignored) continue;
    const fs::file_time_type used = it->last_write_time(ignored);
    if (ignored) continue;
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, kSuffix)) {
      files.push_back({it->path(), bytes, used});
    } else if (absl::EndsWith(name, kWriting) && fs::file_time_type::clock::now() - used > kAbandonedAfter) {
      fs::remove(it->path(), ignored);
    }
  }
  return files;
}

}  // namespace

PackCache::PackCache(std::string folder, uint64_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) WarnOnce(absl::StrCat("cannot be made: ", error.message()));
}

std::string PackCache::KeyOf(absl::string_view form, std::span<const TensorView> parts) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  Update(state.get(), kVersion);
  Update(state.get(), form);
  for (const TensorView& part : parts) {
    Update(state.get(), absl::StrCat(GgmlTypeName(part.type), ShapeToString(part.shape)));
    Update(state.get(), absl::string_view(reinterpret_cast<const char*>(part.data), part.bytes));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

std::string PackCache::PathOf(const std::string& key) const { return absl::StrCat(folder_, "/", key, kSuffix); }

std::shared_ptr<uint8_t[]> PackCache::Find(const std::string& key, size_t bytes) {
  const std::string path = PathOf(key);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return nullptr;
  const size_t size = kHeaderBytes + bytes + kTailBytes;
  struct stat info;
  std::shared_ptr<uint8_t[]> payload;
  if (fstat(file.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) == size) {
    // MAP_POPULATE: pages come in one go instead of by a fault each.
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (mapped == MAP_FAILED) return nullptr;
    uint8_t* const base = static_cast<uint8_t*>(mapped);
    payload = std::shared_ptr<uint8_t[]>(base + kHeaderBytes, [base, size](uint8_t*) { munmap(base, size); });
    const Header expected = HeaderOf(key, {payload.get(), bytes});
    if (std::memcmp(base, &expected, sizeof(expected)) != 0) payload = nullptr;
  }
  if (payload == nullptr) {
    WarnOnce(absl::StrCat(key, kSuffix, " is damaged: packed again"));
    unlink(path.c_str());
    return nullptr;
  }
  futimens(file.get(), nullptr);  // Used now; a folder that cannot be written to has no order to keep.
  MutexLock lock(&mutex_);
  in_use_.insert(key);
  return payload;
}

void PackCache::Keep(const std::string& key, std::span<const uint8_t> packed) {
  if (!MakeRoom(kHeaderBytes + packed.size() + kTailBytes)) return;
  // A name that nobody else has, in other containers too: a file is complete before it has the name that others map.
  std::string aside = absl::StrCat(folder_, "/", key, ".XXXXXX", kWriting);
  const FileDescriptor file(mkostemps(aside.data(), static_cast<int>(kWriting.size()), O_CLOEXEC));
  if (file.get() < 0 || !WriteFile(file.get(), HeaderOf(key, packed), packed) ||
      rename(aside.c_str(), PathOf(key).c_str()) != 0) {
    WarnOnce(absl::StrCat("packed weights are not kept: ", std::strerror(errno)));
    unlink(aside.c_str());
    return;
  }
  MutexLock lock(&mutex_);
  in_use_.insert(key);
}

bool PackCache::MakeRoom(uint64_t bytes) {
  std::vector<KeptFile> files = ListFiles(folder_);
  uint64_t total = 0;
  for (const KeptFile& file : files) total += file.bytes;
  std::ranges::sort(files, {}, &KeptFile::used);
  for (const KeptFile& file : files) {
    if (total + bytes <= max_bytes_) return true;
    {
      MutexLock lock(&mutex_);
      if (in_use_.contains(std::string(absl::StripSuffix(file.path.filename().string(), kSuffix)))) continue;
    }
    std::error_code error;
    if (fs::remove(file.path, error)) total -= file.bytes;
  }
  if (total + bytes <= max_bytes_) return true;
  WarnOnce(absl::StrFormat("%d more bytes do not fit its bound of %d: not all weights are kept", bytes, max_bytes_));
  return false;
}

void PackCache::WarnOnce(absl::string_view what) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(warned_, true)) return;
  }
  BATON_LOG(WARNING) << "cache folder " << folder_ << ": " << what;
}

}  // namespace baton::cpu
