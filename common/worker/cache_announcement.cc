// SPDX-License-Identifier: Apache-2.0
#include "common/worker/cache_announcement.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace baton {

std::optional<internal::CacheUpdate> CacheAnnouncement::Next(std::vector<uint64_t> cached) {
  const uint64_t sum = std::accumulate(cached.begin(), cached.end(), uint64_t{0});
  if (sequence_ > 0 && sum == told_sum_ && cached.size() == told_.size()) return std::nullopt;
  std::sort(cached.begin(), cached.end());
  internal::CacheUpdate update;
  std::vector<uint64_t> added, removed;
  std::set_difference(cached.begin(), cached.end(), told_.begin(), told_.end(), std::back_inserter(added));
  std::set_difference(told_.begin(), told_.end(), cached.begin(), cached.end(), std::back_inserter(removed));
  update.set_sequence(++sequence_);
  update.set_snapshot(sequence_ == 1 || added.size() + removed.size() > cached.size() / 2);
  if (update.snapshot()) {
    update.mutable_added()->Assign(cached.begin(), cached.end());
  } else {
    update.mutable_added()->Assign(added.begin(), added.end());
    update.mutable_removed()->Assign(removed.begin(), removed.end());
  }
  told_ = std::move(cached);
  told_sum_ = sum;
  return update;
}

std::optional<std::vector<uint64_t>> AskForCachedPrefixes(Engine* engine, absl::Duration timeout) {
  // Outlives whoever has stopped waiting.
  struct Reply {
    Mutex mutex;
    CondVar answered;
    std::optional<std::vector<uint64_t>> prefixes ABSL_GUARDED_BY(mutex);
  };
  const auto reply = std::make_shared<Reply>();
  const bool posted = engine->TryPost([reply](EngineCore& core) {
    std::vector<uint64_t> prefixes = core.CachedPrefixes(kMaxAnnouncedPrefixes);
    MutexLock lock(&reply->mutex);
    reply->prefixes = std::move(prefixes);
    reply->answered.NotifyAll();
  });
  if (!posted) return std::nullopt;
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  MutexLock lock(&reply->mutex);
  while (!reply->prefixes && Clock::Real()->Now() < deadline) reply->answered.WaitFor(&reply->mutex, deadline - Clock::Real()->Now());
  return std::move(reply->prefixes);
}

}  // namespace baton
