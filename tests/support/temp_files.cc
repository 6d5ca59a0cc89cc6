// SPDX-License-Identifier: Apache-2.0
#include "tests/support/temp_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "tests/support/paths.h"

namespace baton::testing {
namespace {

namespace fs = std::filesystem;

fs::path Root() {
  const char* given = std::getenv("TEST_TMPDIR");
  return given != nullptr && *given != '\0' ? fs::path(given) : fs::path(BuildPath("tests/tmp"));
}

// An open folder with a lock on it, which the kernel takes back with the process, however that ends. -1: another has it.
int OpenLocked(const fs::path& folder, int operation) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && flock(fd, operation) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// The program's folder: locked while the program lives.
class ProgramFolder {
 public:
  ProgramFolder() : owner_(getpid()) {
    const fs::path root = Root();
    fs::create_directories(root);
    const int root_fd = OpenLocked(root, LOCK_EX);  // So that nobody takes a folder for stale before it is locked.
    BATON_CHECK(root_fd >= 0) << root.string();
    RemoveStale(root);
    path_ = root / absl::StrCat("baton_", owner_);
    fs::create_directories(path_);
    fd_ = OpenLocked(path_, LOCK_EX | LOCK_NB);
    BATON_CHECK(fd_ >= 0) << path_.string();
    close(root_fd);
  }
  // A child that a test forked has the object too, and leaves the folder alone.
  ~ProgramFolder() {
    std::error_code ignored;
    if (getpid() == owner_) fs::remove_all(path_, ignored);
    close(fd_);
  }

  const fs::path& path() const { return path_; }

 private:
  static void RemoveStale(const fs::path& root) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root, ignored)) {
      if (!entry.path().filename().string().starts_with("baton_")) continue;
      const int fd = OpenLocked(entry.path(), LOCK_EX | LOCK_NB);
      if (fd < 0) continue;
      fs::remove_all(entry.path(), ignored);
      close(fd);
    }
  }

  const pid_t owner_;
  fs::path path_;
  int fd_ = -1;
};

}  // namespace

std::string TempPath(absl::string_view name) {
  static const ProgramFolder folder;
  static std::atomic<int> counter{0};
  return (folder.path() / absl::StrCat(counter++, "_", name)).string();
}

std::string WriteTempFile(absl::string_view name, absl::string_view bytes) {
  const std::string path = TempPath(name);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  BATON_CHECK(file.good()) << path;
  return path;
}

std::string MakeTempFolder(absl::string_view name) {
  const std::string path = TempPath(name);
  BATON_CHECK(fs::create_directory(path)) << path;
  return path;
}

}  // namespace baton::testing
