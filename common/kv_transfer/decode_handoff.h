// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_DECODE_HANDOFF_H_
#define BATON_COMMON_KV_TRANSFER_DECODE_HANDOFF_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// The receiving side of one transfer: which attempt may write, who may still be writing, and what is answered. Pure: events
// in, actions out, no time, no memory, no threads. The table is in README.md; each of its rules is a case of
// tests/unit/kv_transfer/decode_handoff_test.cc. Engine thread only.
class DecodeHandoff {
 public:
  enum class State {
    kLanding,  // Blocks are reserved, a writer is expected or at work.
    kLocal,    // Computing the prompt here.
    kReady,    // KV complete and verified: the sequence runs (or waits after a preemption).
    kEnded,
  };

  struct Action {
    enum class Kind {
      // To the router.
      kSendLanding,
      kSendLanded,
      kSendFailed,   // `status` says why.
      kSendStopped,
      kSendRefused,  // `status` says why.
      // To a writer.
      kGrant,        // `one_sided` says how it may write.
      kDeny,
      kAbort,
      // To the landing zone: writes of `attempt` are accepted from now on. Older zones were closed by the caller.
      kOpenZone,
      // To the engine. `writer` of a quarantine is the one-sided writer that it is for; no worker: a frame being copied.
      kReplaceBlocks,      // New blocks; the old ones are quarantined under `attempt`.
      kPrefillLocally,
      kRun,                // Landed: join the running batch.
      kCancel,             // End the sequence, blocks to the cache or the free list.
      kCancelQuarantined,  // End it; blocks that were being written are quarantined under `attempt`.
      kReleaseQuarantine,  // Nobody can write to what was quarantined under `attempt` any more.
    };
    Kind kind;
    int attempt = 0;
    PeerId writer = {};
    bool one_sided = false;
    absl::Status status = absl::OkStatus();
  };
  using Actions = std::vector<Action>;

  // Blocks are reserved (the caller refuses a Start that finds none). `complete`: the whole prompt was cached. `local`: no
  // transfer, compute here.
  Actions Start(bool complete, bool local);

  // Attempt(m) and PrefillLocally(m) from the router. `pinned`: closing the zone found a frame being copied.
  Actions OnAttempt(int m, bool pinned);
  Actions OnPrefillLocally(int m, bool pinned);

  // A writer asks on its link. `may_write_itself`: the transport is one-sided and the peer is below its quarantine cap.
  Actions OnOpen(int n, const PeerId& writer, bool may_write_itself);

  // The end of attempt n arrived; `verified` is OK when everything matched.
  Actions OnManifest(int n, const PeerId& writer, const absl::Status& verified);

  // The writer said so (Aborted), came back on a new link with the same incarnation, or its process has ended.
  Actions OnWriterGone(const PeerId& writer, std::optional<int> attempt);

  // The last frame being copied for `attempt` is done.
  Actions OnUnpinned(int attempt);

  // A closed connection ends a two-sided writer only.
  Actions OnLinkClosed(const PeerId& writer);

  Actions OnComputedLocally(const absl::Status& status);

  // Stop from the router. `pinned` as above.
  Actions OnStop(bool pinned);
  // The router's stream broke, or its process is gone: as Stop, but nobody is there to answer.
  Actions OnRouterGone(bool pinned);
  // The transfer timeout.
  Actions OnTimeout(bool pinned);
  // The engine ended the sequence (last token, or a failure).
  Actions OnFinished();
  // kReplaceBlocks found no blocks: a credit is a hint (W7).
  Actions OnNoBlocks(const absl::Status& status);

  State state() const { return state_; }
  int attempt() const { return attempt_; }
  // Attempts whose blocks are quarantined still.
  bool has_quarantine() const { return !quarantine_.empty(); }

 private:
  struct Quarantined {
    int attempt;
    std::optional<PeerId> writer;  // One-sided, not yet known to be gone.
    bool pinned;
  };

  Actions NewAttempt(int m, bool pinned, bool local);
  Actions Leave(bool pinned, std::optional<Action> answer);
  void ReleaseSettled(Actions* actions);

  State state_ = State::kLanding;
  int attempt_ = 0;
  int landed_attempt_ = 0;
  std::optional<PeerId> writer_;      // Holds a one-sided grant for attempt_.
  std::optional<PeerId> two_sided_;   // Sends frames for attempt_.
  std::vector<Quarantined> quarantine_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_DECODE_HANDOFF_H_
