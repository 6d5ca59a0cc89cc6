// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/out_buffer.h"

#include <sys/uio.h>

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/kv_transfer/stream/socket.h"

namespace baton {
namespace {

constexpr size_t kMaxVectors = 256;

}  // namespace

void OutBuffer::Append(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  if (chunks_.empty() || chunks_.back().own.empty()) chunks_.emplace_back();
  std::vector<uint8_t>& own = chunks_.back().own;
  own.insert(own.end(), bytes.begin(), bytes.end());
  size_ += bytes.size();
}

void OutBuffer::AppendReference(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  chunks_.emplace_back().reference = bytes;
  size_ += bytes.size();
}

absl::StatusOr<size_t> OutBuffer::SendNow(int fd) {
  size_t total = 0;
  while (!chunks_.empty()) {
    iovec vectors[kMaxVectors];
    size_t count = 0, offered = 0;
    for (const Chunk& chunk : chunks_) {
      if (count == kMaxVectors) break;
      const std::span<const uint8_t> rest = chunk.rest();
      vectors[count++] = {.iov_base = const_cast<uint8_t*>(rest.data()), .iov_len = rest.size()};
      offered += rest.size();
    }
    BATON_ASSIGN_OR_RETURN(const size_t sent, WriteNow(fd, std::span<const iovec>(vectors, count)));
    total += sent;
    size_ -= sent;
    for (size_t left = sent; left > 0;) {
      Chunk& chunk = chunks_.front();
      const size_t part = std::min(left, chunk.rest().size());
      chunk.sent += part;
      left -= part;
      if (chunk.rest().empty()) chunks_.pop_front();
    }
    if (sent < offered) break;
  }
  return total;
}

void OutBuffer::Own() {
  for (Chunk& chunk : chunks_) {
    if (!chunk.own.empty()) continue;
    const std::span<const uint8_t> rest = chunk.rest();
    chunk.own.assign(rest.begin(), rest.end());
    chunk.reference = {};
    chunk.sent = 0;
  }
}

}  // namespace baton
