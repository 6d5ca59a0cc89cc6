// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_BLOCK_H_
#define BATON_COMMON_KV_BLOCK_H_

#include <cstdint>

namespace baton {

// Index of a block in the pool, 0 <= id < num_blocks.
using BlockId = int32_t;

inline constexpr BlockId kNoBlock = -1;

}  // namespace baton

#endif  // BATON_COMMON_KV_BLOCK_H_
