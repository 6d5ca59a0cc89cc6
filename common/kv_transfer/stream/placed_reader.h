// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_PLACED_READER_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_PLACED_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_transfer/landing_zone.h"

namespace baton {

// A frame that a one-sided writer says it has put into the blocks of a zone.
struct PlacedFrame {
  std::shared_ptr<LandingZone> zone;
  FrameHeader header;
};

// Makes the checksums of what one-sided writers have put into blocks on a device. One thread. A call that waits ends as PayloadReader's do.
class PlacedReader {
 public:
  using Interrupted = std::function<absl::Status()>;
  static constexpr size_t kMaxFrames = 64;

  virtual ~PlacedReader() = default;
  // Of what lies now where each header says, in wire form; nothing for a header that fits no frame of its zone, which the zone then names.
  // At most kMaxFrames of them. The zones need not be open: nothing is written.
  virtual absl::StatusOr<std::vector<std::optional<uint64_t>>> Checksums(std::span<const PlacedFrame> frames, const Interrupted& interrupted) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_PLACED_READER_H_
