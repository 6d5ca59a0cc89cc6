// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/memory.h"

#include <algorithm>

namespace baton::ptx {

const MemoryRange* MemoryRanges::Before(uint64_t address) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](uint64_t value, const MemoryRange& range) { return value < range.begin; });
  return after == ranges_.begin() ? nullptr : &*std::prev(after);
}

const MemoryRange* MemoryRanges::Find(uint64_t address, uint64_t bytes) const {
  const MemoryRange* const range = Before(address);
  if (range == nullptr || address >= range->end || bytes > range->end - address) return nullptr;
  return range;
}

void GlobalMemory::Add(const void* base, size_t bytes) {
  const MemoryRange added{reinterpret_cast<uint64_t>(base), reinterpret_cast<uint64_t>(base) + bytes};
  MutexLock lock(&mutex_);
  std::vector<MemoryRange> ranges = ranges_->ranges();
  const auto at = std::upper_bound(ranges.begin(), ranges.end(), added.begin,
                                   [](uint64_t value, const MemoryRange& range) { return value < range.begin; });
  ranges.insert(at, added);
  ranges_ = std::make_shared<const MemoryRanges>(std::move(ranges));
}

bool GlobalMemory::Remove(const void* base) {
  MutexLock lock(&mutex_);
  std::vector<MemoryRange> ranges = ranges_->ranges();
  const auto found = std::find_if(ranges.begin(), ranges.end(),
                                  [&](const MemoryRange& range) { return range.begin == reinterpret_cast<uint64_t>(base); });
  if (found == ranges.end()) return false;
  ranges.erase(found);
  ranges_ = std::make_shared<const MemoryRanges>(std::move(ranges));
  return true;
}

bool GlobalMemory::Contains(const void* base, size_t bytes) const {
  return Snapshot()->Find(reinterpret_cast<uint64_t>(base), bytes) != nullptr;
}

std::shared_ptr<const MemoryRanges> GlobalMemory::Snapshot() const {
  MutexLock lock(&mutex_);
  return ranges_;
}

}  // namespace baton::ptx
