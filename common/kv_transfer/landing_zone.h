// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_LANDING_ZONE_H_
#define BATON_COMMON_KV_TRANSFER_LANDING_ZONE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/kv/block_allocator.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// K and V of tokens [token_begin, token_end) in one layer, in KvPool's wire form, block after block.
struct FrameHeader {
  int layer = 0;
  int token_begin = 0;  // A multiple of the block size, or the transfer's first token.
  int token_end = 0;    // A multiple of the block size, or the transfer's last.
  uint64_t checksum = 0;  // XXH3-64 of the payload.
};

// What a writer says at the end of an attempt; everything that must match before decode starts.
struct Manifest {
  std::string model_fingerprint;
  std::string kv_layout;
  std::string numerics;
  int first_token = 0;
  int num_tokens = 0;       // KV of tokens [first_token, num_tokens) was sent.
  uint64_t token_hash = 0;  // Low half of HashTokens over all num_tokens tokens.
  uint64_t checksum = 0;    // ManifestChecksum over the frames.
  int64_t payload_bytes = 0;
};

// One frame as both sides remember it.
struct FrameRecord {
  int layer = 0;
  int token_begin = 0;
  int token_end = 0;
  uint64_t checksum = 0;
};

uint64_t FrameChecksum(std::span<const uint8_t> payload);
// Over the records in (layer, token_begin) order, whatever order they were made in.
uint64_t ManifestChecksum(std::vector<FrameRecord> records);

struct LandingZoneOptions {
  TransferId transfer;
  int attempt = 0;
  std::vector<BlockId> blocks;  // In position order from token 0.
  int first_token = 0;          // A multiple of the block size.
  int num_tokens = 0;           // Tokens [first_token, num_tokens) are expected.
  uint64_t token_hash = 0;
  KvCompatibility compatibility;
};

struct LandingStats {
  int64_t payload_bytes = 0;
  int64_t num_frames = 0;
  double receive_ms = 0;  // First frame to verified.
  std::string numerics;   // The writer's.
};

// The blocks that one attempt may write to. Transport threads write while it is open; the engine thread closes it. A frame
// pins the zone from its check to the end of its copy, and whoever closes the zone learns whether a copy is going on (rule
// W4: a pinned block is quarantined, not freed).
class LandingZone {
 public:
  // `on_unpinned` is called once, on a transport thread, if Close found the zone pinned and the copy has ended.
  LandingZone(const LandingZoneOptions& options, KvPool* pool, const Clock* clock, std::function<void()> on_unpinned);

  // Checks and copies one frame. Any thread, one writer at a time.
  //   CANCELLED         the zone is closed: drop the frame, nothing was written.
  //   INVALID_ARGUMENT  outside the transfer, badly aligned or of the wrong size; names the bound.
  //   DATA_LOSS         checksum mismatch; nothing was written.
  // After an error other than CANCELLED the attempt cannot verify any more.
  absl::Status Write(const FrameHeader& header, std::span<const uint8_t> payload);

  // OK when `manifest` matches what is expected and what arrived covers every (layer, token) exactly once.
  //   FAILED_PRECONDITION  model, layout or tokens differ; names both values.
  //   DATA_LOSS            missing, doubled or corrupt frames.
  //   CANCELLED            the zone is closed.
  absl::Status Verify(const Manifest& manifest, LandingStats* stats);

  // When the last frame was copied; ZeroDuration before the first.
  MonotonicTime last_write() const;

  // No further writes. True when a frame is being copied at this moment. Engine thread; idempotent (later calls say false).
  bool Close();

  int attempt() const { return options_.attempt; }
  const TransferId& transfer() const { return options_.transfer; }
  std::span<const BlockId> blocks() const { return options_.blocks; }

 private:
  absl::Status CheckFrame(const FrameHeader& header, size_t payload_bytes) const;
  absl::Status CheckCoverage(const std::vector<FrameRecord>& records) const;
  void Copy(const FrameHeader& header, std::span<const uint8_t> payload) const;

  const LandingZoneOptions options_;
  KvPool* const pool_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  std::function<void()> on_unpinned_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int pins_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<FrameRecord> records_ ABSL_GUARDED_BY(mutex_);
  int64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  MonotonicTime first_frame_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  MonotonicTime last_write_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

// The open zone of every transfer that is landing here. Thread-safe.
class LandingDirectory {
 public:
  // Replaces an older attempt's zone (which its owner has closed).
  void Put(std::shared_ptr<LandingZone> zone);
  void Remove(const TransferId& transfer);
  // Null when the transfer is unknown, or when its current attempt is another one: the frame is dropped.
  std::shared_ptr<LandingZone> Find(const TransferId& transfer, int attempt) const;
  size_t size() const;

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<TransferId, std::shared_ptr<LandingZone>> zones_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_LANDING_ZONE_H_
