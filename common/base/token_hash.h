// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_TOKEN_HASH_H_
#define BATON_COMMON_BASE_TOKEN_HASH_H_

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// 128 bits of XXH3. Not cryptographic: whoever reuses memory by it compares the tokens as well.
struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  friend auto operator<=>(const Hash128&, const Hash128&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Hash128& hash) {
    return H::combine(std::move(h), hash.high, hash.low);
  }
};

// 32 hexadecimal digits, high half first.
std::string ToHex(const Hash128& hash);

// Tokens per link of a hash chain. Block sizes are multiples of it, so that router and workers hash alike whatever their
// block sizes.
inline constexpr int kTokensPerUnit = 16;

// What a cached prefix belongs to besides its tokens. Part of every key.
struct TokenHashKey {
  std::string model_fingerprint;
  std::string adapter;     // Empty: the base model.
  std::string cache_salt;  // Empty: shared by everybody.
};

// The hash of the empty prefix: where every chain of `key` starts. Fields are length-prefixed, so ("ab","c") and
// ("a","bc") differ.
Hash128 ChainRoot(const TokenHashKey& key);

// The hash of a prefix that ends in `unit` (kTokensPerUnit ids), after the prefix with hash `parent`.
Hash128 ExtendChain(const Hash128& parent, std::span<const int32_t> unit);

// Hashes of the prefixes of 16, 32, ... tokens: element i covers tokens [0, 16 * (i + 1)). Tokens after the last whole unit
// are not hashed. The same in every process and release: the value crosses the wire.
std::vector<Hash128> HashChain(const TokenHashKey& key, std::span<const int32_t> tokens);

// A hash of exactly these tokens (any number), for manifests.
Hash128 HashTokens(std::span<const int32_t> tokens);

// A hash of bytes, for fingerprints and checksums.
Hash128 HashBytes(absl::string_view bytes);

}  // namespace baton

#endif  // BATON_COMMON_BASE_TOKEN_HASH_H_
