// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_PAYLOAD_CHANNEL_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_PAYLOAD_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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
  // Copies a frame's payload into the batch that is being filled. False: it is full; SendBatch makes room.
  virtual absl::StatusOr<bool> Add(std::span<const std::span<const uint8_t>> payload, const Interrupted& interrupted) = 0;
  // Begins to send the batch, which the socket has announced. Does not wait.
  virtual absl::Status SendBatch() = 0;
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
  // The next batch, which has `bytes` bytes; valid until the next call.
  virtual absl::StatusOr<std::span<const uint8_t>> Receive(size_t bytes, const Interrupted& interrupted) = 0;
  virtual void Close(bool orderly) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_PAYLOAD_CHANNEL_H_
