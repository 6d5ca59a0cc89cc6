// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_LANDING_ZONE_H_
#define BATON_COMMON_KV_TRANSFER_LANDING_ZONE_H_

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/kv/block_allocator.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/checksum.h"
#include "common/kv_transfer/transfer.h"
#include "common/kv_transfer/write_token.h"

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
  int64_t num_frames = 0;
  int64_t payload_bytes = 0;
  uint64_t checksum = 0;  // ManifestChecksum over the frames and everything above.
};

// One frame as both sides remember it.
struct FrameRecord {
  int layer = 0;
  int token_begin = 0;
  int token_end = 0;
  uint64_t checksum = 0;
};

// Over the records in (layer, token_begin) order, whatever order they were made in, and the manifest's other fields.
uint64_t ManifestChecksum(std::vector<FrameRecord> records, const Manifest& manifest);

struct LandingZoneOptions {
  TransferId transfer;
  int attempt = 0;
  std::vector<BlockId> blocks;  // In position order from token 0.
  int first_token = 0;          // A multiple of the block size.
  int num_tokens = 0;           // Tokens [first_token, num_tokens) are expected.
  uint64_t token_hash = 0;
  KvCompatibility compatibility;
  WriteToken token;  // Whoever shows it may write.
  bool verify_frames = true;  // False: frames' checksums are taken on trust. For measuring what they cost.
};

struct LandingStats {
  int64_t payload_bytes = 0;
  int64_t num_frames = 0;
  double receive_ms = 0;  // First frame to verified.
  std::string numerics;   // The writer's.
};

class FrameArrival;

// The blocks that one attempt may write to. Transport threads write while it is open; the engine thread closes it. A frame
// pins the zone from its check to the end of its copy, and whoever closes the zone learns whether a copy is going on (rule
// W4: a pinned block is quarantined, not freed).
class LandingZone {
 public:
  // `on_unpinned` is called once, on a transport thread, if Close found the zone pinned and the copy has ended.
  LandingZone(const LandingZoneOptions& options, KvPool* pool, const Clock* clock, std::function<void()> on_unpinned);

  // Five ways for a frame to come. All threads; different frames at the same time.
  //   CANCELLED         the zone is closed: drop the frame, nothing was written.
  //   INVALID_ARGUMENT  outside the transfer, badly aligned or of the wrong size; names the bound.
  //   DATA_LOSS         checksum mismatch.
  // After an error other than CANCELLED the attempt cannot verify any more.

  // It lies in memory, in pieces: checked and copied.
  absl::Status Write(const FrameHeader& header, std::span<const std::span<const uint8_t>> payload);
  absl::Status Write(const FrameHeader& header, std::span<const uint8_t> payload);
  // It comes bit by bit, straight into the blocks where they can take it: see FrameArrival.
  absl::StatusOr<std::unique_ptr<FrameArrival>> Receive(const FrameHeader& header, size_t payload_bytes);
  // A one-sided writer has put it into the blocks already: checked there.
  absl::Status Accept(const FrameHeader& header);
  // The same on a device, where `checksum` was made of what lies there.
  absl::Status AcceptOnDevice(const FrameHeader& header, uint64_t checksum);
  // Whole cells in the pool's layout that lie on the pool's device, elsewhere; `checksum` was made of them there (nothing: only where the zone
  // does not verify). After OK the zone is pinned, and the caller copies them to their blocks on the device; EndMove says that nothing is
  // copied any more, and how that went.
  absl::Status BeginMove(const FrameHeader& header, size_t payload_bytes, std::optional<uint64_t> checksum);
  void EndMove(const FrameHeader& header, const absl::Status& moved);

  // OK when `manifest` matches what is expected and what arrived covers every (layer, token) exactly once. Nothing can be
  // written afterwards, whatever the result: an attempt has one manifest.
  //   FAILED_PRECONDITION  model, layout or tokens differ; names both values.
  //   DATA_LOSS            missing, doubled or corrupt frames.
  //   CANCELLED            the zone is closed, or this is a second manifest.
  absl::Status Verify(const Manifest& manifest, LandingStats* stats);
  // As Verify, where frames may still be on their way over other connections: at the manifest's number of frames, or at the
  // first error. `done` is called once, on this thread or that of the last frame; never if the zone is closed before.
  void VerifyWhenComplete(const Manifest& manifest,
                          std::function<void(const absl::Status&, const LandingStats&)> done);

  // When something was last written; ZeroDuration before that.
  MonotonicTime last_write() const;

  // No further writes. True when a frame is being written at this moment. Engine thread; idempotent (later calls say false).
  bool Close();

  int attempt() const { return options_.attempt; }
  const TransferId& transfer() const { return options_.transfer; }
  const WriteToken& token() const { return options_.token; }
  bool verifies_frames() const { return options_.verify_frames; }
  std::span<const BlockId> blocks() const { return options_.blocks; }

 private:
  friend class FrameArrival;
  struct Waiting {
    Manifest manifest;
    std::function<void(const absl::Status&, const LandingStats&)> done;
  };

  // Of frames of that size, the layout that is not the pool's; null: they are as the pool has them.
  const KvLayout* WireLayout(const FrameHeader& header, size_t payload_bytes) const;
  absl::Status CheckFrame(const FrameHeader& header, size_t payload_bytes) const;
  absl::Status CheckCoverage(const std::vector<FrameRecord>& records) const;
  absl::Status CheckSum(const FrameHeader& header, std::span<const std::span<const uint8_t>> payload) const;
  absl::Status CompareSum(const FrameHeader& header, uint64_t checksum) const;
  // The frame's cells, or the parts of them that it fills: `whole` of them as they lie in the pool, then `partial` tokens of
  // one more (its memory is not in one piece).
  struct Place {
    std::vector<std::span<uint8_t>> whole;
    BlockId partial_block = -1;
    int partial_tokens = 0;
  };
  Place PlaceOf(const FrameHeader& header) const;
  // From check to end of a write. Pin says CANCELLED when the zone is closed, and remembers `status` when it is an error.
  absl::Status Pin(const absl::Status& status);
  void Unpin();
  // What is to be called without the lock; may be null.
  std::function<void()> UnpinLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishFrame(const FrameHeader& header, size_t payload_bytes, const absl::Status& status, bool on_device = false);

  const LandingZoneOptions options_;
  std::optional<KvLayout> wire_;  // Of frames, where that is not the pool's.
  KvPool* const pool_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  std::function<void()> on_unpinned_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool sealed_ ABSL_GUARDED_BY(mutex_) = false;  // A manifest was held against it.
  int pins_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<FrameRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::optional<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  MonotonicTime first_write_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  MonotonicTime last_write_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

// A frame that comes in parts: the caller reads each part straight into the memory that Pin names. The zone is pinned only
// between Pin and Unpin, never while the caller waits for more, so that a writer that stalls holds no block. One thread; the
// zone outlives it.
class FrameArrival {
 public:
  // What is still to come, in order. Empty when the zone has been closed: drop the rest. Each call with a result is followed by
  // Unpin, with how much of it was filled.
  std::span<const iovec> Pin();
  void Unpin(size_t bytes);
  size_t missing_bytes() const { return missing_; }
  // All is there: as LandingZone::Write.
  absl::Status Commit();

 private:
  friend class LandingZone;
  FrameArrival(LandingZone* zone, const FrameHeader& header, size_t payload_bytes);
  // What did not come straight into the blocks.
  void WriteBuffered();

  LandingZone* const zone_;
  const FrameHeader header_;
  const size_t payload_bytes_;
  const KvLayout* const wire_;  // In which it comes; null: in the pool's.
  LandingZone::Place place_;    // Of one in the pool's.
  std::vector<uint8_t> buffer_;  // All of one in another layout, or the cell that is not filled to its end, in wire form.
  std::vector<iovec> vectors_;
  size_t next_vector_ = 0;
  size_t missing_;
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
