// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_PULL_HANDOFF_H_
#define BATON_COMMON_KV_TRANSFER_PULL_HANDOFF_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// A pull: one attempt of a prefill worker at the beginning of a prompt that a decode worker has. That one writes it, two-sided,
// as prefill writes a landing; it holds the blocks until it has sent the manifest, so a manifest that verifies is its word
// that what arrived was held. Pure: events in, actions out. The table is in README.md; each of its rules is a case of
// tests/unit/kv_transfer/pull_handoff_test.cc. Engine thread only.
class PullHandoff {
 public:
  enum class State {
    kOpen,      // The writer is expected or at work.
    kClosing,   // It is over; whoever executes closes the zone and says OnClosed.
    kDraining,  // A frame is being copied into the zone still.
    kEnded,
  };
  struct Action {
    enum class Kind {
      kGrant,      // To the writer, never one-sided: nobody else could say when it has stopped writing.
      kDeny,       // `status` says why.
      kAbort,      // To the writer: its attempt is over.
      kCloseZone,  // And say OnClosed.
      kEnd,        // Nobody writes to the blocks any more. `status` OK: all of the prefix is in them, verified. Last and once.
    };
    Kind kind;
    PeerId writer = {};
    absl::Status status = absl::OkStatus();
  };
  using Actions = std::vector<Action>;

  // Only the process of this incarnation may be the writer.
  explicit PullHandoff(uint64_t writer_incarnation) : writer_incarnation_(writer_incarnation) {}

  // Messages of a KV link.
  Actions OnOpen(const PeerId& writer);
  Actions OnManifest(const PeerId& writer, const absl::Status& verified);
  Actions OnAborted(const PeerId& writer);
  Actions OnLinkClosed(const PeerId& writer);

  // It will not come (the decode worker said so), came too late (DEADLINE_EXCEEDED), or nobody wants it any more (CANCELLED).
  Actions Stop(const absl::Status& why);

  // The zone takes nothing more; `pinned`: but for a frame that is being copied at this moment.
  Actions OnClosed(bool pinned);
  // That copy has ended.
  Actions OnUnpinned();

  State state() const { return state_; }
  const std::optional<PeerId>& writer() const { return writer_; }

 private:
  Actions Close(const absl::Status& result);
  Actions End();

  const uint64_t writer_incarnation_;
  State state_ = State::kOpen;
  std::optional<PeerId> writer_;
  absl::Status result_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_PULL_HANDOFF_H_
