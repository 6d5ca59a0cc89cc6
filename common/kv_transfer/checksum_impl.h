// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set.
#ifndef BATON_COMMON_KV_TRANSFER_CHECKSUM_IMPL_H_
#define BATON_COMMON_KV_TRANSFER_CHECKSUM_IMPL_H_
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/kv_transfer/checksum_table.h"

namespace baton::checksum {
namespace {

uint64_t HashOne(const uint8_t* data, size_t bytes) { return XXH3_64bits(data, bytes); }

uint64_t HashPieces(const iovec* pieces, size_t num_pieces) {
  alignas(64) XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < num_pieces; ++i) XXH3_64bits_update(&state, pieces[i].iov_base, pieces[i].iov_len);
  return XXH3_64bits_digest(&state);
}

constexpr Functions kFunctions = {HashOne, HashPieces};

}  // namespace
}  // namespace baton::checksum

#endif  // BATON_COMMON_KV_TRANSFER_CHECKSUM_IMPL_H_
