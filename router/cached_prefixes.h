// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_CACHED_PREFIXES_H_
#define BATON_ROUTER_CACHED_PREFIXES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

namespace baton {

// What the beginnings of a prompt are known by in the caches of one model: element i stands for the first 16 (i + 1) tokens.
struct PromptPrefixes {
  std::string model_fingerprint;
  std::vector<uint64_t> names;  // Low halves of the chain's hashes.
};
PromptPrefixes NamePrefixes(absl::string_view model_fingerprint, absl::string_view cache_salt, std::span<const int32_t> tokens);

// Which prefixes a worker has cached, by what it has said. Immutable: a change makes another one, which shares the bulk of its
// memory with the old one. A hint: the worker may have evicted them since.
class CachedPrefixes {
 public:
  // A worker that says more than this is believed no further.
  static constexpr size_t kMax = 65536;

  // `names` and the like: any range of uint64_t.
  template <typename Range>
  static std::shared_ptr<const CachedPrefixes> Of(const Range& names) {
    return std::make_shared<const CachedPrefixes>(std::vector<uint64_t>(names.begin(), names.end()));
  }
  template <typename Added, typename Removed>
  std::shared_ptr<const CachedPrefixes> With(const Added& added, const Removed& removed) const {
    return Change({added.begin(), added.end()}, {removed.begin(), removed.end()});
  }

  explicit CachedPrefixes(const std::vector<uint64_t>& names);

  bool Contains(uint64_t name) const { return added_.contains(name) || (base_->contains(name) && !removed_.contains(name)); }
  size_t size() const { return base_->size() + added_.size() - removed_.size(); }
  // How many tokens of a prompt that begins so are cached, in blocks of `block_size` tokens, a multiple of 16. Costs one look-up
  // per block that is.
  int64_t NumCachedTokens(std::span<const uint64_t> names, int block_size) const;

 private:
  using Set = absl::flat_hash_set<uint64_t>;
  CachedPrefixes(std::shared_ptr<const Set> base, Set added, Set removed)
      : base_(std::move(base)), added_(std::move(added)), removed_(std::move(removed)) {}
  std::shared_ptr<const CachedPrefixes> Change(const std::vector<uint64_t>& added, const std::vector<uint64_t>& removed) const;

  std::shared_ptr<const Set> base_;
  Set added_;    // Not in base_.
  Set removed_;  // In base_.
};

}  // namespace baton

#endif  // BATON_ROUTER_CACHED_PREFIXES_H_
