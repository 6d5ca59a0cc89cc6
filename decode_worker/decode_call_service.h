// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_DECODE_CALL_SERVICE_H_
#define BATON_DECODE_WORKER_DECODE_CALL_SERVICE_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/kv_transfer/decode_handoff.h"
#include "common/rpc/call.h"
#include "common/rpc/one_shot_timer.h"
#include "decode_worker/decode_service.h"
#include "decode_worker/decode_trace.h"
#include "decode_worker/history_sender.h"

namespace baton {

// One Decode call: carries out what DecodeHandoff decides, on the engine thread, and sends the tokens. gRPC threads and
// transport threads only post to the engine.
class DecodeCall : public std::enable_shared_from_this<DecodeCall> {
 public:
  using Stream = ServerCall<internal::DecodeRequest, internal::DecodeEvent>;

  // `caller`: the span that the call is made for.
  DecodeCall(DecodeService* service, const std::optional<TraceContext>& caller)
      : service_(service), runtime_(service->runtime_), history_(service->runtime_, &service->links_), trace_(runtime_->tracer(), caller) {}
  // What its stream tells it. Once; then the stream itself, before the first message.
  Stream::Callbacks Open();
  void SetStream(std::shared_ptr<Stream> stream) { stream_ = std::move(stream); }
  // The worker ends, with its engine: nothing more is to come of the call.
  void Abandon() { timeout_.reset(); }

  // Engine thread: what the KV link reports.
  void OnManifest(EngineCore& core, int attempt, const PeerId& peer, const absl::Status& verified, const LandingStats& stats);
  void OnWriterGone(EngineCore& core, std::optional<int> attempt, const PeerId& peer);
  void OnOpen(EngineCore& core, int attempt, const PeerId& peer);
  void OnLinkClosed(EngineCore& core, const PeerId& peer);

 private:
  // gRPC threads.
  void OnMessage(internal::DecodeRequest&& request);
  void Refuse(const absl::Status& status);
  // With its grammar; on the thread that compiled it.
  void PostStart(std::shared_ptr<internal::DecodeStart> start, std::shared_ptr<SequenceSpec> spec);

  // Engine thread.
  void Start(EngineCore& core, const internal::DecodeStart& start, SequenceSpec spec);
  void Handle(EngineCore& core, const internal::DecodeRequest& request);
  void OnRouterGone(EngineCore& core);
  void OnTimeout(EngineCore& core, int attempt);
  void OnToken(const TokenEvent& token);
  void OnGenerationFailed(EngineCore& core, const absl::Status& status);
  SequenceSink MakeSink(EngineCore& core);

  // Closes the zone of the current attempt; true when a frame is being copied into it right now.
  bool CloseZone();
  void Execute(EngineCore& core, const DecodeHandoff::Actions& actions);
  void Do(EngineCore& core, const DecodeHandoff::Action& action);
  void OpenZone(int attempt);
  void Quarantine(int attempt, const PeerId& writer, std::vector<BlockId> blocks);
  void Grant(const DecodeHandoff::Action& action);
  void ReplaceBlocks(EngineCore& core, int attempt, const PeerId& writer);
  // The current attempt's transfer has ended, if one had begun that was not counted yet.
  void CountTransfer(const char* result, int64_t bytes = 0);
  void ArmTimeout(int attempt);
  void SendLanding(int attempt);
  void SendLanded(int attempt);
  absl::Status CheckSendHistory(const internal::SendHistory& request) const;
  void SendHistory(EngineCore& core, const internal::SendHistory& request);
  void SendLast(internal::DecodeEvent event);
  void EndIfSettled();

  DecodeService* const service_;
  WorkerRuntime* const runtime_;
  std::shared_ptr<Stream> stream_;
  bool started_ = false;  // A Start has arrived. gRPC's reading thread only.

  // Engine thread only.
  DecodeHandoff handoff_;
  SequenceId id_ = 0;
  std::vector<internal::DecodeRequest> early_;  // Came while the format of Start was being compiled.
  TransferId transfer_;
  std::string request_id_;
  Landing landing_;
  uint64_t token_hash_ = 0;
  std::vector<int32_t> cached_tokens_;  // Those that the landing found in the prefix cache.
  HistorySender history_;
  int num_choices_ = 1;
  int choices_finished_ = 0;
  std::shared_ptr<LandingZone> zone_;
  bool zone_pinned_ = false;  // The zone that was closed last is being written to still.
  MonotonicTime opened_at_ = absl::ZeroDuration();
  struct Quarantined {
    PeerId writer;  // No worker: a frame was being copied.
    std::vector<BlockId> blocks;
  };
  std::map<int, Quarantined> quarantined_;  // By attempt.
  std::optional<TransportKind> writing_;    // By which the current attempt is being sent.
  std::set<TransportKind> corrupt_;         // Over which an attempt of this transfer did not verify.
  std::string transport_;                   // That brought the KV; empty when nothing crossed.
  std::unique_ptr<OneShotTimer> timeout_;
  LandingStats stats_;
  MonotonicTime local_begin_ = absl::ZeroDuration();
  double local_prefill_ms_ = 0;
  bool over_ = false;  // The last message has been sent.
  DecodeTrace trace_;
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_DECODE_CALL_SERVICE_H_
