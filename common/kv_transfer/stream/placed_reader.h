// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_PLACED_READER_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_PLACED_READER_H_

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "common/kv_transfer/landing_zone.h"

namespace baton {

// Brings what a one-sided writer has put into blocks on a device to the host, where it is checked like a frame that came by a socket.
// One thread. A call that waits ends as PayloadReader's do.
class PlacedReader {
 public:
  using Interrupted = std::function<absl::Status()>;

  virtual ~PlacedReader() = default;
  // What lies now where `header` says, in wire form and in pieces; valid until the next call. Nothing for a header that fits no frame of
  // the zone, which LandingZone::Write then names. The zone need not be open: nothing is written.
  virtual absl::StatusOr<std::span<const std::span<const uint8_t>>> Read(const LandingZone& zone, const FrameHeader& header,
                                                                         const Interrupted& interrupted) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_PLACED_READER_H_
