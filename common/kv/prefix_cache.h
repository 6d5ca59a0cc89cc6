// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_PREFIX_CACHE_H_
#define BATON_COMMON_KV_PREFIX_CACHE_H_

#include <cstdint>
#include <string>

namespace baton {

// Everything besides the tokens that decides whether two prefixes are the same. Part of every hash from the first day.
struct CacheKey {
  std::string model_fingerprint;
  std::string adapter;     // Empty: none.
  std::string cache_salt;  // Isolates tenants; empty: the shared space.
};

// The helper who owns common/kv completes this class: chained block hash (common/base/token_hash.h) to block id, tokens
// compared on a hit, least-recently-used order over blocks that nobody else references. Holds ids, never memory.
class PrefixCache {};

}  // namespace baton

#endif  // BATON_COMMON_KV_PREFIX_CACHE_H_
