// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_MEMORY_H_
#define BATON_TESTS_GPU_SIM_PTX_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/mutex.h"

namespace baton::ptx {

struct MemoryRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Allocations, sorted.
class MemoryRanges {
 public:
  MemoryRanges() = default;
  explicit MemoryRanges(std::vector<MemoryRange> sorted) : ranges_(std::move(sorted)) {}

  // The allocation that holds all of [address, address + bytes), or null.
  const MemoryRange* Find(uint64_t address, uint64_t bytes) const;
  // The allocation that `address` lies in or that ends last before it; null where there is none.
  const MemoryRange* Before(uint64_t address) const;
  const std::vector<MemoryRange>& ranges() const { return ranges_; }

 private:
  std::vector<MemoryRange> ranges_;
};

// The memory that kernels may touch: host memory whose addresses are the device's. Does not own it. Any thread; a launch works on
// the allocations that there were when it began.
class GlobalMemory {
 public:
  void Add(const void* base, size_t bytes);
  // False: no allocation begins there.
  bool Remove(const void* base);
  // Whether [base, base + bytes) lies in one allocation.
  bool Contains(const void* base, size_t bytes) const;
  std::shared_ptr<const MemoryRanges> Snapshot() const;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const MemoryRanges> ranges_ ABSL_GUARDED_BY(mutex_) = std::make_shared<const MemoryRanges>();
};

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_MEMORY_H_
