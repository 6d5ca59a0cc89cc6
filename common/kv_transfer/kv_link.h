// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_KV_LINK_H_
#define BATON_COMMON_KV_TRANSFER_KV_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/kv/block.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"
#include "common/kv_transfer/write_token.h"

namespace baton {

// What each end of a link says first.
struct LinkHello {
  PeerId self;
  KvCompatibility compatibility;
};

// What the receiver allows the writer of an attempt.
struct LinkGrant {
  bool one_sided = false;       // Write into the blocks yourself.
  std::vector<BlockId> blocks;  // Of the receiver's pool, in position order from token 0; one-sided only.
};

// A frame on its way out.
struct OutgoingFrame {
  TransferId transfer;
  int attempt = 0;
  FrameHeader header;
  std::span<const std::span<const uint8_t>> payload;  // Wire form for the receiver's layout, in pieces.
  // The pieces stay as they are until Settle or until the link has sent them; else only during the call.
  bool lasting = false;
  // Where the link puts the checksum, which the header has not, by the end of the next Flush. Null: the header has it. See sums_cells.
  std::shared_ptr<uint64_t> checksum;
  const LinkGrant* grant = nullptr;  // Null: none was needed.
};

// The writer's end of one connection to one peer's KvReceiver: what a transport is to LinkSender. Used by one thread, once:
// Open, then any of the others, then Close. Calls that wait end with what `interrupted` returns when that is an error (asked
// several times a second), with DEADLINE_EXCEEDED when the peer takes nothing for the stall timeout that the link was made
// with, and with UNAVAILABLE when the connection is broken.
class KvLink {
 public:
  using Interrupted = std::function<absl::Status()>;
  // What the receiver says. Called on the link's own threads, must not block; no call after Close has returned.
  struct Events {
    std::function<void(const TransferId&, int attempt, const LinkGrant&)> on_grant;
    std::function<void(const TransferId&, int attempt, const absl::Status&)> on_deny;
    std::function<void(const TransferId&, int attempt)> on_abort;
    std::function<void()> on_closed;  // The connection broke, or the receiver closed it. At most once, after Open.
  };

  virtual ~KvLink() = default;
  virtual TransportKind kind() const = 0;

  // Connects and exchanges Hello; the receiver's answer.
  //   UNAVAILABLE          nobody there, or no answer within `timeout`.
  //   FAILED_PRECONDITION  the pair cannot work together; names both values.
  virtual absl::StatusOr<LinkHello> Open(const LinkHello& self, absl::Duration timeout) = 0;
  // False once the connection is known to be broken. Any thread.
  virtual bool alive() const = 0;
  // Frames of whole cells of the writer's pool may be handed over, with this grant (null: none was needed), without their checksum: it is
  // made where the pool lies, on the way. After Open.
  virtual bool sums_cells(const LinkGrant* /*grant*/) const { return false; }

  // `token`: what the writer was given for the attempt; none where nobody gave it one.
  virtual absl::Status SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) = 0;
  virtual absl::Status SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) = 0;
  // Sends what was kept back to fill a packet.
  virtual absl::Status Flush(const Interrupted& interrupted) = 0;
  // After everything of the attempt, which has been sent when this returns OK: no byte of it is read afterwards.
  virtual absl::Status SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                                    const Interrupted& interrupted) = 0;
  // Ends an attempt without a manifest. Does not wait; a link that is stuck drops it.
  virtual void SendAborted(const TransferId& transfer, int attempt) = 0;
  // No byte of any frame handed over is read afterwards, and none is written to the receiver's pool. Does not wait.
  virtual void Settle() = 0;
  // What was sent may still arrive: waits for that up to `flush_timeout`, then closes. Idempotent.
  virtual void Close(absl::Duration flush_timeout) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_KV_LINK_H_
