// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_PREFILL_WORKER_HISTORY_PULL_H_
#define BATON_PREFILL_WORKER_HISTORY_PULL_H_

#include <functional>
#include <memory>
#include <vector>

#include "common/engine/engine_core.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/pull_handoff.h"
#include "common/kv_transfer/transports/kv_receiver_set.h"
#include "common/rpc/one_shot_timer.h"
#include "common/worker/worker_runtime.h"

namespace baton {

// One pull: blocks for the beginning of a prompt, what decode sends into them, and their way into the prefix cache, where the prompt
// finds them. Carries out what PullHandoff decides. Engine thread, but for what transports and timers post there.
class HistoryPull : public std::enable_shared_from_this<HistoryPull> {
 public:
  struct Options {
    TransferId transfer;
    int attempt = 0;
    uint64_t decode_incarnation = 0;  // Who may send it.
    CacheKey key;
    std::vector<int32_t> tokens;  // Whole blocks.
    Landing landing;              // For them, by ReservePrefix. The pull's from now on.
    absl::Duration patience;
  };
  struct Result {
    // OK: the prefix cache has all of the tokens. Otherwise nothing has changed there.
    absl::Status status;
    const char* transport = "none";  // Nobody came.
    LandingStats stats;
    absl::Duration took;
  };
  using OnEnd = std::function<void(EngineCore&, const Result&)>;

  // What the pointers point to outlives the pull.
  HistoryPull(WorkerRuntime* runtime, LandingDirectory* directory, const KvReceiverSet* receivers, Options options);

  // From now on it can be sent. `on_end` is called once, after the last byte was written and the blocks were released, never
  // from inside Begin.
  void Begin(OnEnd on_end);
  // What the sender has to be told.
  int first_token() const { return options_.landing.num_cached_tokens; }
  int num_tokens() const { return options_.landing.num_tokens; }
  const WriteToken& token() const { return zone_->token(); }  // From Begin on.

  // What the KV links report.
  void OnOpen(EngineCore& core, const PeerId& peer) { Execute(core, handoff_.OnOpen(peer)); }
  void OnManifest(EngineCore& core, const PeerId& peer, const absl::Status& verified, const LandingStats& stats);
  void OnAborted(EngineCore& core, const PeerId& peer) { Execute(core, handoff_.OnAborted(peer)); }
  void OnLinkClosed(EngineCore& core, const PeerId& peer) { Execute(core, handoff_.OnLinkClosed(peer)); }

  // Ends it, unless it has ended: with `why`.
  void Stop(EngineCore& core, const absl::Status& why) { Execute(core, handoff_.Stop(why)); }
  // The engine is no more: takes nothing further, and lets go of itself.
  void Abandon();

 private:
  void Execute(EngineCore& core, const PullHandoff::Actions& actions);
  void Do(EngineCore& core, const PullHandoff::Action& action);
  // FAILED_PRECONDITION: what has come was held in less than this pool holds. Cached, it would be sent on as if it had been computed here.
  absl::Status CheckPrecision(const LandingStats& stats) const;
  bool CloseZone();  // Whether a frame is being copied.
  void End(EngineCore& core, const absl::Status& status);

  WorkerRuntime* const runtime_;
  LandingDirectory* const directory_;
  const KvReceiverSet* const receivers_;
  const Options options_;
  PullHandoff handoff_;
  OnEnd on_end_;
  std::shared_ptr<LandingZone> zone_;
  std::unique_ptr<OneShotTimer> timeout_;
  MonotonicTime begun_ = absl::ZeroDuration();
  Result result_;
};

}  // namespace baton

#endif  // BATON_PREFILL_WORKER_HISTORY_PULL_H_
