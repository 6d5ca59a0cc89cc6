// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_PACK_CACHE_H_
#define BATON_COMMON_BACKEND_CPU_PACK_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/format/tensor.h"

namespace baton::cpu {

// Packed weights in a folder, one file per packed matrix, so that a second start maps what the first one packed, and the
// workers of a machine share its pages. A file is named by what it was made from, has a checksum, and appears whole or not
// at all (written aside, then renamed), so any number of processes may use a folder at once. The cache only ever costs itself:
// whatever is wrong with the folder, its files or the disk is logged once and means packing as without it. Any thread.
class PackCache {
 public:
  // `max_bytes` of files are kept; the least recently used go first, never those that this process uses. Makes the folder.
  PackCache(std::string folder, uint64_t max_bytes);

  // Names what packing `parts` gives, by every byte of them, their types and shapes, and the version of the packed form.
  static std::string KeyOf(absl::string_view form, std::span<const TensorView> parts);

  // The `bytes` bytes kept as `key`, read-only, 64-byte aligned, with 64 readable bytes behind the end; null when they are
  // not there. A file that is damaged or of another size is removed.
  std::shared_ptr<uint8_t[]> Find(const std::string& key, size_t bytes);

  // Keeps `packed` as `key`.
  void Keep(const std::string& key, std::span<const uint8_t> packed);

 private:
  std::string PathOf(const std::string& key) const;
  // Removes files until `bytes` more fit; false when they cannot.
  bool MakeRoom(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void WarnOnce(absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string folder_;
  const uint64_t max_bytes_;
  Mutex mutex_;
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_set<std::string> in_use_ ABSL_GUARDED_BY(mutex_);  // Names of files found or kept by this process.
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_PACK_CACHE_H_
