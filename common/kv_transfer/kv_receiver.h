// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_KV_RECEIVER_H_
#define BATON_COMMON_KV_TRANSFER_KV_RECEIVER_H_

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// What a transport tells the worker that lands transfers. Called on transport threads, must not block: the worker posts to
// its engine thread. Frames do not come here: the transport writes them into the zone it finds in the LandingDirectory.
struct KvReceiverEvents {
  // A writer announces itself.
  std::function<void(const TransferId&, int attempt, const PeerId&)> on_open;
  // The manifest of an attempt; `verified` is LandingZone::Verify's result (CANCELLED for an attempt that is not current).
  std::function<void(const TransferId&, int attempt, const PeerId&, const absl::Status& verified, const LandingStats&)>
      on_manifest;
  // The writer has ended this attempt without a manifest, or (no attempt) all it had: a new link of the same incarnation.
  std::function<void(const TransferId&, std::optional<int> attempt, const PeerId&)> on_aborted;
  // The link of this peer is closed.
  std::function<void(const PeerId&)> on_link_closed;
};

// The receiving end of one kind of transport, for all peers of this process.
class KvReceiver {
 public:
  virtual ~KvReceiver() = default;
  virtual const char* transport() const = 0;
  // Tells a writer that its attempt is fenced; it stops and answers Aborted. Unknown peers are ignored.
  virtual void Abort(const PeerId& peer, const TransferId& transfer, int attempt) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_KV_RECEIVER_H_
