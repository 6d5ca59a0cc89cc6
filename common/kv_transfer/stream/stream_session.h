// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_STREAM_SESSION_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_STREAM_SESSION_H_

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv_transfer/receiver_core.h"
#include "common/kv_transfer/stream/payload_channel.h"
#include "common/kv_transfer/stream/placed_reader.h"
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
  // OK, or why nothing more is worth waiting for: the session must end, or the peer is gone.
  virtual absl::Status Interrupted() { return absl::OkStatus(); }
};

// What a session does beyond reading frames from its source.
struct StreamSessionOptions {
  bool may_place = false;  // The peer may say that it has written into the pool itself.
  std::function<void()> on_released = nullptr;  // With may_place: the peer has closed the pool, the session ends.
  // Opens this end of a payload channel with the writer's invitation; null: frames come by the source only.
  std::function<absl::StatusOr<std::unique_ptr<PayloadReader>>(std::span<const uint8_t> invitation)> open_payloads;
  // With may_place: what makes the checksums of placed frames; null: they lie in the pool's cells on the host.
  std::function<absl::StatusOr<std::unique_ptr<PlacedReader>>()> open_placed;
};

// The receiver's side of one connection of a byte-stream link: reads messages until the connection ends, and does what they
// say. Frames go straight from the source into their blocks. One thread.
class StreamSession {
 public:
  // `on_hello` answers the peer, or says why not; its result is the link's, of all its connections. `deny` tells the peer.
  using OnHelloFn = std::function<absl::StatusOr<std::shared_ptr<LinkAdmissions>>(const StreamHello&)>;
  using DenyFn = std::function<void(const TransferId&, int attempt, const absl::Status&)>;
  StreamSession(const ReceiverCore* core, ByteSource* source, StreamSessionOptions options, OnHelloFn on_hello, DenyFn deny);

  // Until the end: OK when the peer closed between two messages. Nothing that did not verify has been obeyed.
  absl::Status Run();

 private:
  absl::Status ReadMessages();
  absl::Status Handle(const MessageHeader& header);
  absl::Status OnHello(std::span<const uint8_t> body);
  void OnOpen(const MessageHeader& header);
  absl::Status OnFrame(const MessageHeader& header);
  absl::Status OnPlacedFrame(const MessageHeader& header);
  // Checks what OnPlacedFrame has left for later.
  absl::Status AcceptPlaced();
  absl::Status OnInvite();
  absl::Status OnBatch();
  // Brings the oldest batch under way to its blocks.
  absl::Status LandBatch();
  // All of them: before the thread waits for what may be long in coming.
  absl::Status LandBatches();
  absl::Status ReceiveFrame(FrameArrival& arrival);
  absl::Status Read(std::span<uint8_t> to);
  // Something, as soon as there is anything.
  absl::StatusOr<size_t> ReadSome(std::span<const iovec> to);
  absl::Status Drop(size_t bytes);
  // From what was read ahead; how much.
  size_t TakeBuffered(std::span<uint8_t> to);

  const ReceiverCore* const core_;
  ByteSource* const source_;
  const StreamSessionOptions options_;
  const OnHelloFn on_hello_;
  const DenyFn deny_;
  bool greeted_ = false;
  bool in_order_ = true;  // One connection: what was sent before a manifest has arrived before it.
  PeerId peer_;
  std::shared_ptr<LinkAdmissions> admissions_;  // From Hello on.
  std::vector<uint8_t> ahead_;  // Read with the message before; [ahead_begin_, ahead_end_) is still to be used.
  size_t ahead_begin_ = 0, ahead_end_ = 0;
  std::vector<uint8_t> body_;
  std::unique_ptr<PayloadReader> payloads_;  // Null before an invitation.
  size_t num_batches_ = 0;                   // Under way there.
  std::unique_ptr<PlacedReader> placed_;     // Null before the first placed frame.
  std::vector<std::pair<PlacedFrame, TransferId>> unchecked_;  // Placed on a device: the more at once, the better.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_STREAM_SESSION_H_
