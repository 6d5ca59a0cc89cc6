// SPDX-License-Identifier: Apache-2.0
#include "common/base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A file that holds one number; nothing for "max", an absent file, or v1's "no limit" (a number near 2^63).
std::optional<int64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadFile(path);
  int64_t value = 0;
  if (!text || !absl::SimpleAtoi(*text, &value) || value < 0 || value > (int64_t{1} << 60)) return std::nullopt;
  return value;
}

// "name value" per line, as in memory.stat.
int64_t ReadStat(const std::string& path, absl::string_view name) {
  const std::optional<std::string> text = ReadFile(path);
  if (!text) return 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t value = 0;
    if (words.size() == 2 && words[0] == name && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return 0;
}

// Bytes of a /proc/meminfo line like "MemAvailable:   123 kB".
std::optional<int64_t> MemInfo(absl::string_view text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &kib)) return kib * 1024;
  }
  return std::nullopt;
}

struct Hierarchy {
  std::string mount;  // Directory of the hierarchy's root.
  std::string path;   // This process's cgroup below it, "/" or "/a/b".
  bool v2 = false;
};

// Where this process stands in the memory hierarchies, from lines "id:controllers:path".
std::vector<Hierarchy> FindHierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  const std::string text = ReadFile(root + "/proc/self/cgroup").value_or("");
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[0] == "0" && fields[1].empty()) {
      found.push_back({.mount = root + "/sys/fs/cgroup", .path = fields[2], .v2 = true});
      continue;
    }
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      found.push_back({.mount = root + "/sys/fs/cgroup/memory", .path = fields[2]});
    }
  }
  return found;
}

// What one cgroup directory leaves. File cache is counted as used by the kernel but given back under pressure.
void Apply(const Hierarchy& hierarchy, const std::string& directory, MemoryLimits* limits) {
  const std::optional<int64_t> limit =
      ReadNumber(directory + (hierarchy.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!limit) return;
  const int64_t used =
      ReadNumber(directory + (hierarchy.v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const std::string stat = directory + "/memory.stat";
  const absl::string_view prefix = hierarchy.v2 ? "" : "total_";
  const int64_t reclaimable = ReadStat(stat, absl::StrCat(prefix, "inactive_file")) +
                              ReadStat(stat, absl::StrCat(prefix, "active_file"));
  const int64_t available = std::max<int64_t>(0, *limit - std::max<int64_t>(0, used - reclaimable));
  limits->limit_bytes = std::min(limits->limit_bytes, *limit);
  if (available < limits->available_bytes) {
    limits->available_bytes = available;
    limits->bound_by = directory;
  }
}

}  // namespace

absl::StatusOr<MemoryLimits> ReadMemoryLimits(absl::string_view root_view) {
  const std::string root(root_view);
  const std::optional<std::string> info = ReadFile(root + "/proc/meminfo");
  const std::optional<int64_t> total = info ? MemInfo(*info, "MemTotal:") : std::nullopt;
  const std::optional<int64_t> available = info ? MemInfo(*info, "MemAvailable:") : std::nullopt;
  if (!total || !available) {
    return absl::UnavailableError(absl::StrCat(root, "/proc/meminfo: no MemTotal and MemAvailable to read"));
  }
  MemoryLimits limits{.available_bytes = *available, .limit_bytes = *total, .bound_by = "machine"};
  for (const Hierarchy& hierarchy : FindHierarchies(root)) {
    // Every enclosing cgroup bounds its children. In a container the path may not exist below the mount, whose root then
    // is the container's own cgroup.
    std::string path = hierarchy.path == "/" ? "" : hierarchy.path;
    while (true) {
      Apply(hierarchy, hierarchy.mount + path, &limits);
      if (path.empty()) break;
      path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }
  }
  return limits;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (!(statm >> size >> resident)) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace baton
