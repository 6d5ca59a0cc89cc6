// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/checksum.h"

#include <vector>

#include "common/kv_transfer/checksum_table.h"

namespace baton {
namespace {

const checksum::Functions& Best() {
  static const checksum::Functions& best = [&]() -> const checksum::Functions& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return checksum::Avx512Functions();
    if (__builtin_cpu_supports("avx2")) return checksum::Avx2Functions();
    return checksum::PlainFunctions();
  }();
  return best;
}

}  // namespace

uint64_t FrameChecksum(std::span<const uint8_t> payload) { return Best().one(payload.data(), payload.size()); }

uint64_t FrameChecksum(std::span<const std::span<const uint8_t>> pieces) {
  if (pieces.size() == 1) return FrameChecksum(pieces[0]);
  std::vector<iovec> vectors(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    vectors[i] = {.iov_base = const_cast<uint8_t*>(pieces[i].data()), .iov_len = pieces[i].size()};
  }
  return Best().pieces(vectors.data(), vectors.size());
}

}  // namespace baton
