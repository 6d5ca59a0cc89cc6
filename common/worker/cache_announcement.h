// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_CACHE_ANNOUNCEMENT_H_
#define BATON_COMMON_WORKER_CACHE_ANNOUNCEMENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "baton/internal/registry.pb.h"
#include "common/engine/engine.h"

namespace baton {

// Of a larger cache routers are told of so many prefixes: half a megabyte at once, a million tokens in blocks of 16.
inline constexpr int kMaxAnnouncedPrefixes = 65536;

// What one router has been told of a worker's prefix cache, in one session. One thread.
class CacheAnnouncement {
 public:
  // What to say when `cached` (each once, in any order) is what there is; nothing when that is what was said last. A change of
  // more than half is said as a snapshot, which is then shorter.
  std::optional<internal::CacheUpdate> Next(std::vector<uint64_t> cached);

 private:
  uint64_t sequence_ = 0;  // Of what was said last; 0: nothing yet.
  uint64_t told_sum_ = 0;  // Of told_, wrapping: equal sums are taken for equal sets, which is as good as a hint needs.
  std::vector<uint64_t> told_;  // In order.
};

// The names of what `engine` has cached (EngineCore::CachedPrefixes). Nothing when it does not answer within `timeout`. Any thread
// but the engine's.
std::optional<std::vector<uint64_t>> AskForCachedPrefixes(Engine* engine, absl::Duration timeout);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_CACHE_ANNOUNCEMENT_H_
