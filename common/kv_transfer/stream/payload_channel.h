// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_PAYLOAD_CHANNEL_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_PAYLOAD_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/stream/wire_format.h"

namespace baton {

// The way that frames' payloads take beside a link's socket, for links that have one. It is ordered and carries no headers: what
// comes next is what the socket has announced next. Each end is used by one thread.
//
// Calls that wait end with what `interrupted` returns when that is an error (asked at least every 20 ms), and may then be made
// again; with DEADLINE_EXCEEDED when nothing moves for the channel's stall timeout; and with another error when the channel is of
// no use any more.
class PayloadWriter {
 public:
  using Interrupted = std::function<absl::Status()>;

  virtual ~PayloadWriter() = default;
  // What the other end's reader is opened with. Once, first.
  virtual absl::StatusOr<std::vector<uint8_t>> Invite() = 0;
  // Until both ends are there. Nothing to do when they are.
  virtual absl::Status Connect(const Interrupted& interrupted) = 0;
  // Begins to bring a frame's payload into the batch that is being filled. False: there is no room; EndBatch makes some. Lasting payload
  // may be read until Settle or until its batch is ready; all else is not read after the call.
  virtual absl::StatusOr<bool> Add(const OutgoingFrame& frame, const Interrupted& interrupted) = 0;
  // Batches that have been ended and not sent: no more than these when one is begun.
  static constexpr size_t kMaxEnded = 2;
  // Nothing more is added to the batch, which has something. Does not wait.
  virtual absl::Status EndBatch() = 0;
  // Whether the oldest batch that has been ended and not sent is ready: its payload has been read, and the checksums of its frames that
  // came without are where they were asked for. `wait`: until it is.
  virtual absl::StatusOr<bool> Ready(bool wait, const Interrupted& interrupted) = 0;
  // Begins to send that batch, which is ready, and which the socket has announced. Does not wait.
  virtual absl::Status SendBatch() = 0;
  // Until no payload is read any more, but not longer than the stall timeout. False: that is not so. Every batch has been ended.
  virtual bool Settle() = 0;
  // Until the batches so far are under way, and need nobody's attention until Drain.
  virtual absl::Status Start(const Interrupted& interrupted) = 0;
  // Until everything has left this end.
  virtual absl::Status Drain(const Interrupted& interrupted) = 0;
  // `orderly`: nothing is under way, and the other end closes too. Else what is under way is given up. Idempotent.
  virtual void Close(bool orderly) = 0;
};

class PayloadReader {
 public:
  using Interrupted = PayloadWriter::Interrupted;

  virtual ~PayloadReader() = default;
  virtual absl::Status Connect(const Interrupted& interrupted) = 0;

  // A frame of a batch, as it has been announced.
  struct Announced {
    BatchedFrame frame;
    bool verify = true;  // False: its checksum is taken on trust.
  };
  // Batches that may be under way at once.
  static constexpr size_t kMaxBatches = 2;
  // Begins to receive the next batch, whose frames' payloads lie one behind the other. May wait for what earlier batches still use.
  virtual absl::Status Receive(std::vector<Announced> frames, const Interrupted& interrupted) = 0;
  // Waits for the oldest batch under way, and brings its frames into the blocks of their zones, those that have one (`find`; null: nobody
  // wants it). `landed` says of each of those how that ended.
  using FindZone = std::function<std::shared_ptr<LandingZone>(const BatchedFrame&)>;
  using Landed = std::function<void(const BatchedFrame&, const absl::Status&)>;
  virtual absl::Status Land(const FindZone& find, const Landed& landed, const Interrupted& interrupted) = 0;
  virtual void Close(bool orderly) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_PAYLOAD_CHANNEL_H_
