// SPDX-License-Identifier: Apache-2.0
#include "router/cached_prefixes.h"

#include <algorithm>
#include <utility>

#include "common/base/token_hash.h"

namespace baton {
namespace {

// A change copies what has changed since the base; past this, and an eighth of the base, a new base is made.
constexpr size_t kMinRebuild = 256;

}  // namespace

PromptPrefixes NamePrefixes(absl::string_view model_fingerprint, absl::string_view cache_salt, std::span<const int32_t> tokens) {
  PromptPrefixes prefixes{.model_fingerprint = std::string(model_fingerprint)};
  const TokenHashKey key{.model_fingerprint = prefixes.model_fingerprint, .cache_salt = std::string(cache_salt)};
  for (const Hash128& hash : HashChain(key, tokens)) prefixes.names.push_back(hash.low);
  return prefixes;
}

CachedPrefixes::CachedPrefixes(const std::vector<uint64_t>& names)
    : base_(std::make_shared<const Set>(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kMax)))) {}

std::shared_ptr<const CachedPrefixes> CachedPrefixes::Change(const std::vector<uint64_t>& added, const std::vector<uint64_t>& removed) const {
  Set plus = added_, minus = removed_;
  for (const uint64_t name : removed) {
    if (plus.erase(name) == 0 && base_->contains(name)) minus.insert(name);
  }
  for (const uint64_t name : added) {
    if (minus.erase(name) > 0 || base_->contains(name)) continue;
    if (base_->size() + plus.size() - minus.size() >= kMax) break;
    plus.insert(name);
  }
  if (plus.size() + minus.size() <= std::max(kMinRebuild, base_->size() / 8)) {
    return std::shared_ptr<const CachedPrefixes>(new CachedPrefixes(base_, std::move(plus), std::move(minus)));
  }
  auto base = std::make_shared<Set>(*base_);
  for (const uint64_t name : minus) base->erase(name);
  base->insert(plus.begin(), plus.end());
  return std::shared_ptr<const CachedPrefixes>(new CachedPrefixes(std::move(base), {}, {}));
}

int64_t CachedPrefixes::NumCachedTokens(std::span<const uint64_t> names, int block_size) const {
  const int units = block_size / kTokensPerUnit;
  if (units < 1) return 0;
  int64_t cached = 0;
  for (size_t end = static_cast<size_t>(units); end <= names.size() && Contains(names[end - 1]); end += static_cast<size_t>(units)) {
    cached = static_cast<int64_t>(end) * kTokensPerUnit;
  }
  return cached;
}

}  // namespace baton
