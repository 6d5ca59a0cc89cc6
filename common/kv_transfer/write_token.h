// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_WRITE_TOKEN_H_
#define BATON_COMMON_KV_TRANSFER_WRITE_TOKEN_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/ids.h"

namespace baton {

// What a writer shows to be the one that was named for an attempt: 128 random bits that the receiver drew for it, and that travel
// to the writer by way of the router. A secret: it has no printed form, and belongs into no log, status or trace.
class WriteToken {
 public:
  static constexpr size_t kBytes = 16;

  WriteToken() = default;  // None.
  explicit WriteToken(std::string bytes) : bytes_(std::move(bytes)) {}
  // A new one, from the kernel's generator.
  static WriteToken Draw() {
    const uint64_t words[] = {RandomUint64(), RandomUint64()};
    static_assert(sizeof(words) == kBytes);
    std::string bytes(kBytes, '\0');
    std::memcpy(bytes.data(), words, kBytes);
    return WriteToken(std::move(bytes));
  }

  bool empty() const { return bytes_.empty(); }
  // For the wire.
  const std::string& bytes() const { return bytes_; }

  // In a time that does not depend on where they differ. None is like no other, not even like none.
  bool Matches(const WriteToken& other) const {
    if (bytes_.size() != kBytes || other.bytes_.size() != kBytes) return false;
    unsigned char difference = 0;
    for (size_t i = 0; i < kBytes; ++i) difference |= static_cast<unsigned char>(bytes_[i] ^ other.bytes_[i]);
    return difference == 0;
  }

 private:
  std::string bytes_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_WRITE_TOKEN_H_
