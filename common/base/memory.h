// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_MEMORY_H_
#define BATON_COMMON_BASE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// What bounds this process's memory, in bytes.
struct MemoryLimits {
  int64_t available_bytes = 0;  // What may still be allocated: the least over the machine and all enclosing cgroups.
  int64_t limit_bytes = 0;      // The least of the machine's memory and all enclosing cgroups' limits.
  std::string bound_by;         // Who set the least `available_bytes`: "machine" or a cgroup's directory.
};

// Reads /proc and /sys/fs/cgroup below `root` (tests give a folder of their own; "" is the machine). Understands cgroup
// v2, v1 and both mounted; page cache that the cgroup could reclaim counts as available.
//   UNAVAILABLE  /proc/meminfo cannot be read. Missing cgroup files are no error: they bound nothing.
absl::StatusOr<MemoryLimits> ReadMemoryLimits(absl::string_view root = "");

// Resident memory of this process in bytes; 0 where /proc is not mounted.
int64_t ResidentBytes();

}  // namespace baton

#endif  // BATON_COMMON_BASE_MEMORY_H_
