// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_MAPPED_FILE_H_
#define BATON_COMMON_FORMAT_MAPPED_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// A regular file mapped read-only and private, until the last reference goes. Immutable, so any thread may read.
//
// The size is the one at Open. A file that shrinks afterwards makes reads behind its new end raise SIGBUS, which ends
// the process (see README.md); a file replaced by rename is not affected.
class MappedFile {
 public:
  // Never blocks on a FIFO or a device.
  //   NOT_FOUND            no such file.
  //   PERMISSION_DENIED    not readable.
  //   INVALID_ARGUMENT     a directory, FIFO, socket or device, or an empty file.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(absl::string_view path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}

  const std::string path_;
  const uint8_t* const data_;
  const size_t size_;
};

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_MAPPED_FILE_H_
