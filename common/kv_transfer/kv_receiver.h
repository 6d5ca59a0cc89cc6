// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_KV_RECEIVER_H_
#define BATON_COMMON_KV_TRANSFER_KV_RECEIVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// What a transport tells the worker that lands transfers. Called on transport threads, must not block: the worker posts to
// its engine thread. Frames do not come here: the transport writes them into the zone it finds in the LandingDirectory.
struct KvReceiverEvents {
  // A writer announces itself; the worker answers by Grant or Deny.
  std::function<void(const TransferId&, int attempt, const PeerId&)> on_open;
  // The manifest of an attempt; `verified` is LandingZone::Verify's result (CANCELLED for an attempt that is not current).
  std::function<void(const TransferId&, int attempt, const PeerId&, const absl::Status& verified, const LandingStats&)>
      on_manifest;
  // The writer has ended this attempt without a manifest.
  std::function<void(const TransferId&, int attempt, const PeerId&)> on_aborted;
  // All that this writer had has ended: it came back on a new link, or its process is gone.
  std::function<void(const PeerId&)> on_writer_gone;
  // The link of this peer is closed. A one-sided writer may write on.
  std::function<void(const PeerId&)> on_link_closed;
  // Who calls himself so opened an attempt without the token that was drawn for it, and has been denied. Null: nobody is told.
  std::function<void(const PeerId&)> on_denied;
};

// Who receives, whatever the transport.
struct KvReceiverOptions {
  std::string worker;  // This process, for Hello.
  uint64_t incarnation = 0;
  KvCompatibility compatibility;
  KvPool* pool = nullptr;  // Outlives the receiver.
  // Nothing of an attempt is taken from a link that has not shown its token. False: a writer without one is taken for one of an
  // older version; a wrong token is denied all the same.
  bool require_tokens = false;
};

// The receiving end of one kind of transport, for all peers of this process. Thread-safe.
class KvReceiver {
 public:
  virtual ~KvReceiver() = default;
  virtual TransportKind kind() const = 0;
  // What writers are told. The address is where Start made it listen.
  virtual TransportOffer offer() const = 0;

  // Answers to on_open. A one-sided grant only where the kind is one-sided. Unknown peers are ignored.
  virtual void Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant& grant) = 0;
  virtual void Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) = 0;
  // Tells a writer that its attempt is fenced; it stops and answers Aborted. Unknown peers are ignored.
  virtual void Abort(const PeerId& peer, const TransferId& transfer, int attempt) = 0;

  // Closes the links and joins the receiver's threads: no event and no write afterwards. Idempotent. Not on a transport thread.
  virtual void Stop() = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_KV_RECEIVER_H_
