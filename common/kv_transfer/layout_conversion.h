// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_LAYOUT_CONVERSION_H_
#define BATON_COMMON_KV_TRANSFER_LAYOUT_CONVERSION_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/kv/block.h"
#include "common/kv/kv_pool.h"

namespace baton {

// OK when KV in `peer` can be turned into KV in `local`: block size and dtype may differ, nothing else.
//   FAILED_PRECONDITION  names both layouts.
absl::Status CheckConvertible(const KvLayout& peer, const KvLayout& local);

// Tokens [token_begin, token_end) of one layer in the wire form of `target`: cell after cell of its blocks, the last one
// filled as far as token_end, every value rounded to its dtype (to nearest, ties to even). token_begin is a
// multiple of target's block size. `blocks` are the pool's, in position order from token 0.
//   out  [(token_end - token_begin) * target.token_layer_bytes()]
void ReadTokensAs(const KvPool& pool, const KvLayout& target, int layer, std::span<const BlockId> blocks, int token_begin,
                  int token_end, std::span<uint8_t> out);

// The other way: a wire cell after another of `wire`, whose block size is the pool's, into tokens [token_begin, token_end) of the
// pool's blocks.
//   in  [(token_end - token_begin) * wire.token_layer_bytes()]
void WriteTokensFrom(const KvPool& pool, const KvLayout& wire, int layer, std::span<const BlockId> blocks, int token_begin,
                     int token_end, std::span<const uint8_t> in);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_LAYOUT_CONVERSION_H_
