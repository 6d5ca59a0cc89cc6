// SPDX-License-Identifier: Apache-2.0
#include "common/format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": cannot open: ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  if (error == ENXIO || error == ENAMETOOLONG || error == ELOOP) return absl::InvalidArgumentError(message);
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(absl::string_view path_view) {
  std::string path(path_view);
  if (path.find('\0') != std::string::npos) return absl::InvalidArgumentError("file name contains a NUL byte");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return OpenError(path, errno);
  struct stat st;
  if (fstat(fd, &st) != 0) {
    const int error = errno;
    close(fd);
    return OpenError(path, error);
  }
  if (!S_ISREG(st.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, ": is ", KindOf(st.st_mode), ", not a regular file"));
  }
  if (st.st_size == 0) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, ": file is empty"));
  }
  const size_t size = static_cast<size_t>(st.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) {
    return absl::InternalError(absl::StrCat(path, ": cannot map ", size, " bytes: ", strerror(error)));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(std::move(path), static_cast<const uint8_t*>(data), size));
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(data_), size_); }

}  // namespace baton
