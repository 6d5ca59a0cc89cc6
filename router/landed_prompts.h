// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_LANDED_PROMPTS_H_
#define BATON_ROUTER_LANDED_PROMPTS_H_

#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/base/token_hash.h"
#include "router/cluster_view.h"

namespace baton {

// Which decode worker a prompt landed at last: there all of it may still be cached, so that nothing is left to prefill. A
// guess, never relied on. Holds the last `capacity` prompts. Thread-safe.
class LandedPrompts {
 public:
  explicit LandedPrompts(size_t capacity = 4096) : capacity_(capacity) {}

  // What a prompt is known by; nothing for one that cannot be cached whole: caches keep whole units, decode computes the
  // last token itself, and of a single token nothing is cached.
  static std::optional<Hash128> KeyOf(std::span<const int32_t> tokens, absl::string_view cache_salt) {
    if (tokens.size() < 2 || (tokens.size() - 1) % kTokensPerUnit != 0) return std::nullopt;
    std::string key = ToHex(HashTokens(tokens.first(tokens.size() - 1)));
    key.append(cache_salt.data(), cache_salt.size());
    return HashBytes(key);
  }

  void Note(const Hash128& key, const WorkerRef& worker) {
    MutexLock lock(&mutex_);
    auto found = index_.find(key);
    if (found != index_.end()) entries_.erase(found->second);
    entries_.emplace_front(key, worker);
    index_[key] = entries_.begin();
    if (entries_.size() <= capacity_) return;
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }

  // No worker when it is not known.
  WorkerRef Find(const Hash128& key) const {
    MutexLock lock(&mutex_);
    auto found = index_.find(key);
    return found == index_.end() ? WorkerRef() : found->second->second;
  }

 private:
  using Entries = std::list<std::pair<Hash128, WorkerRef>>;  // Newest first.

  const size_t capacity_;
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  std::map<Hash128, Entries::iterator> index_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_ROUTER_LANDED_PROMPTS_H_
