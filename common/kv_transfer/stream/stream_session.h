// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_STREAM_SESSION_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_STREAM_SESSION_H_

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv_transfer/receiver_core.h"
#include "common/kv_transfer/stream/wire_format.h"

namespace baton {

// Where a session's bytes come from. One thread.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Waits until something can be read. OUT_OF_RANGE: the peer has closed. Other errors: it broke, or the session must end.
  virtual absl::Status WaitReadable() = 0;
  // What is there already; 0 when nothing is.
  virtual absl::StatusOr<size_t> ReadNow(std::span<const iovec> to) = 0;
};

// The receiver's side of one connection of a byte-stream link: reads messages until the connection ends, and does what they
// say. Frames go straight from the source into their blocks. One thread.
class StreamSession {
 public:
  // `on_hello` answers the peer, or says why not. `may_place`: the peer may say that it has written into the pool itself.
  StreamSession(const ReceiverCore* core, ByteSource* source, bool may_place,
                std::function<absl::Status(const StreamHello&)> on_hello);

  // Until the end: OK when the peer closed between two messages. Nothing that did not verify has been obeyed.
  absl::Status Run();

 private:
  absl::Status Handle(const MessageHeader& header);
  absl::Status OnHello(std::span<const uint8_t> body);
  absl::Status OnFrame(const MessageHeader& header);
  absl::Status OnPlacedFrame(const MessageHeader& header);
  absl::Status ReceiveFrame(FrameArrival& arrival);
  absl::Status Read(std::span<uint8_t> to);
  // Something, as soon as there is anything.
  absl::StatusOr<size_t> ReadSome(std::span<const iovec> to);
  absl::Status Drop(size_t bytes);
  // From what was read ahead; how much.
  size_t TakeBuffered(std::span<uint8_t> to);

  const ReceiverCore* const core_;
  ByteSource* const source_;
  const bool may_place_;
  const std::function<absl::Status(const StreamHello&)> on_hello_;
  bool greeted_ = false;
  bool in_order_ = true;  // One connection: what was sent before a manifest has arrived before it.
  PeerId peer_;
  std::vector<uint8_t> ahead_;  // Read with the message before; [ahead_begin_, ahead_end_) is still to be used.
  size_t ahead_begin_ = 0, ahead_end_ = 0;
  std::vector<uint8_t> body_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_STREAM_SESSION_H_
