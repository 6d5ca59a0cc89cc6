// SPDX-License-Identifier: Apache-2.0
#include "common/base/token_hash.h"

#include <xxhash.h>

#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"

namespace baton {
namespace {

// Token ids are hashed as they lie in memory; the wire's order is little-endian.
static_assert(std::endian::native == std::endian::little);

Hash128 HashMemory(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {.high = hash.high64, .low = hash.low64};
}

void AppendField(std::string* out, absl::string_view field) {
  const uint64_t size = field.size();
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(field.data(), field.size());
}

}  // namespace

std::string ToHex(const Hash128& hash) { return absl::StrFormat("%016x%016x", hash.high, hash.low); }

Hash128 ChainRoot(const TokenHashKey& key) {
  std::string bytes = "baton-chain-1";
  AppendField(&bytes, key.model_fingerprint);
  AppendField(&bytes, key.adapter);
  AppendField(&bytes, key.cache_salt);
  return HashMemory(bytes.data(), bytes.size());
}

Hash128 ExtendChain(const Hash128& parent, std::span<const int32_t> unit) {
  BATON_CHECK_EQ(unit.size(), static_cast<size_t>(kTokensPerUnit));
  struct {
    uint64_t high, low;
    int32_t tokens[kTokensPerUnit];
  } link;
  static_assert(sizeof(link) == 16 + 4 * kTokensPerUnit);
  link.high = parent.high;
  link.low = parent.low;
  std::memcpy(link.tokens, unit.data(), sizeof(link.tokens));
  return HashMemory(&link, sizeof(link));
}

std::vector<Hash128> HashChain(const TokenHashKey& key, std::span<const int32_t> tokens) {
  std::vector<Hash128> chain;
  chain.reserve(tokens.size() / kTokensPerUnit);
  Hash128 parent = ChainRoot(key);
  for (size_t begin = 0; begin + kTokensPerUnit <= tokens.size(); begin += kTokensPerUnit) {
    parent = ExtendChain(parent, tokens.subspan(begin, kTokensPerUnit));
    chain.push_back(parent);
  }
  return chain;
}

Hash128 HashTokens(std::span<const int32_t> tokens) { return HashMemory(tokens.data(), tokens.size_bytes()); }

Hash128 HashBytes(absl::string_view bytes) { return HashMemory(bytes.data(), bytes.size()); }

}  // namespace baton
