// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_OUT_BUFFER_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_OUT_BUFFER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// Bytes that wait to be written to one socket, in order: copies, and references to memory that stays as it is. One thread.
class OutBuffer {
 public:
  void Append(std::span<const uint8_t> bytes);
  // `bytes` are read until they are sent or Own is called.
  void AppendReference(std::span<const uint8_t> bytes);
  // Writes as much as the socket takes now; what was written. UNAVAILABLE: the connection is broken.
  absl::StatusOr<size_t> SendNow(int fd);
  // Copies what is referenced, so that nobody else's memory is read any more.
  void Own();
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  struct Chunk {
    std::vector<uint8_t> own;             // Empty: a reference.
    std::span<const uint8_t> reference;
    size_t sent = 0;
    std::span<const uint8_t> rest() const {
      return (own.empty() ? reference : std::span<const uint8_t>(own)).subspan(sent);
    }
  };
  std::deque<Chunk> chunks_;
  size_t size_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_OUT_BUFFER_H_
