// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_STREAM_LINK_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_STREAM_LINK_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/stream/out_buffer.h"
#include "common/kv_transfer/stream/payload_channel.h"
#include "common/kv_transfer/stream/peer_pool.h"
#include "common/kv_transfer/stream/socket.h"
#include "common/kv_transfer/stream/wire_format.h"

namespace baton {

struct StreamLinkOptions {
  TransportKind kind = TransportKind::kTcp;
  std::string address;  // For messages.
  std::function<absl::StatusOr<Fd>(absl::Duration timeout)> connect;
  int num_connections = 1;
  // The receiver may share its pool, with this Welcome and the descriptor that came along, if one did: what a grant allows is written
  // there. Null: it is not.
  std::function<absl::StatusOr<std::unique_ptr<PeerPool>>(const StreamHello& welcome, const Fd& memory)> open_pool;
  absl::Duration stall_timeout = absl::Seconds(10);
  std::function<std::unique_ptr<PayloadWriter>()> make_payloads;  // Null: payloads go over the sockets.
  bool payloads_sum_cells = false;  // With make_payloads: it makes the checksums of frames that come without, of whole cells.
};

// A link over stream sockets. Frames go round its connections, straight from the blocks by scatter-gather; or, with a shared
// pool and a one-sided grant, into the receiver's blocks themselves, and only their headers over the socket; or in batches by a
// payload channel, made at the first frame.
class StreamLink final : public KvLink {
 public:
  StreamLink(StreamLinkOptions options, Events events);
  ~StreamLink() override;

  TransportKind kind() const override { return options_.kind; }
  absl::StatusOr<LinkHello> Open(const LinkHello& self, absl::Duration timeout) override;
  bool alive() const override { return open_.load() && !broken_.load(); }
  bool sums_cells(const LinkGrant* grant) const override;
  absl::Status SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) override;
  absl::Status SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  absl::Status Flush(const Interrupted& interrupted) override;
  absl::Status SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                            const Interrupted& interrupted) override;
  void SendAborted(const TransferId& transfer, int attempt) override;
  void Settle() override;
  void Close(absl::Duration flush_timeout) override;

 private:
  struct Connection {
    Fd socket;
    OutBuffer out;
  };

  // Before the reader runs.
  absl::StatusOr<StreamHello> Greet(const LinkHello& self, absl::Duration timeout);
  absl::StatusOr<StreamHello> ReadWelcome(size_t connection, MonotonicTime deadline);

  // The sending thread.
  // stream_link_payloads.cc.
  absl::Status PlaceFrame(const OutgoingFrame& frame, size_t bytes, const Interrupted& interrupted);
  // Tells the receiver of the frames that lie in its pool; `all`: waits until every one does that was placed.
  absl::Status AnnouncePlaced(bool all, const Interrupted& interrupted);
  absl::Status AddToBatch(const OutgoingFrame& frame, const Interrupted& interrupted);
  absl::Status OpenPayloads(const Interrupted& interrupted);
  absl::Status EndBatch();
  // Announces and sends the batches that have been ended and are ready; `all`: waits until every one is.
  absl::Status SendBatches(bool all, const Interrupted& interrupted);
  // `interrupted`, with the sockets kept going, and the link's own end.
  Interrupted WhileAlive(const Interrupted& interrupted);
  // What a call to the payload channel, or the receiver's pool, came to: one that failed takes the link with it.
  absl::Status OfPayloads(const absl::Status& status, const Interrupted& interrupted);
  // Closes the receiver's pool, and says so, where nothing is written there any more.
  void ReleasePool();
  absl::StatusOr<Connection*> NextWritable(const Interrupted& interrupted);
  // Sends what the sockets take now. Whether anything moved.
  absl::StatusOr<bool> SendSome();
  absl::Status WaitUntil(const std::function<bool()>& done, const Interrupted& interrupted);
  absl::Status Broken(absl::string_view why) const;

  // The reading thread.
  void Read();
  absl::Status ReadAnswers();
  absl::Status ParseAnswers();
  void OnEnd();
  absl::Status HandleAnswer(const MessageHeader& header, std::span<const uint8_t> body);

  const StreamLinkOptions options_;
  const Events events_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::unique_ptr<PeerPool> peer_pool_;  // With open_pool, after Open, where the receiver shares it.
  size_t next_connection_ = 0;
  // Frames that the receiver has not been told of, and where their checksum is, if not in the header.
  std::deque<std::pair<MessageHeader, std::shared_ptr<const uint64_t>>> placed_;
  size_t placed_bytes_ = 0;  // Since the last flush.
  std::unique_ptr<PayloadWriter> payloads_;  // Null before the first frame.
  struct Batch {
    std::vector<BatchedFrame> frames;
    std::vector<std::shared_ptr<const uint64_t>> checksums;  // Of each, where it is if not in the header.
  };
  Batch batch_;              // That is being filled.
  std::deque<Batch> ended_;  // Not announced.
  std::atomic<bool> open_{false}, broken_{false};
  std::atomic<bool> drained_{false};  // The receiver has closed every connection.
  std::vector<uint8_t> answers_;  // Read and not yet whole. The reader's, after Open; as is the next.
  bool told_ = false;             // That the link is closed.
  const Fd wake_, closed_;
  Thread reader_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_STREAM_LINK_H_
