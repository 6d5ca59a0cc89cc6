// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_PREFILL_WORKER_PREFILL_CALL_SERVICE_H_
#define BATON_PREFILL_WORKER_PREFILL_CALL_SERVICE_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/rpc/event_stream.h"
#include "common/trace/tracer.h"
#include "prefill_worker/prefill_service.h"

namespace baton {

// One Prefill call: computes a prompt on the engine and pushes its KV to the decode worker while it is being computed. What decode
// has of the prompt and this worker has not, it may have sent first: the prompt then finds it in the prefix cache.
//
// Three parties: the router's stream (gRPC threads), the engine thread, and the sender's thread. The call's state belongs to
// the engine thread; the others post to it. It ends when both engine and sender are done with the blocks, and answers Done
// or Failed exactly once.
class PrefillCall : public std::enable_shared_from_this<PrefillCall> {
 public:
  using Stream = ServerEventStream<internal::PrefillRequest, internal::PrefillEvent>;

  // `caller`: the span that the call is made for.
  PrefillCall(PrefillService* service, const std::optional<TraceContext>& caller)
      : service_(service), runtime_(service->runtime_), caller_(caller.value_or(TraceContext())) {}
  Stream* Open();

 private:
  // gRPC threads.
  void OnMessage(internal::PrefillRequest&& request);
  void OnRouterGone();
  absl::Status CheckStart(const internal::PrefillStart& start) const;

  // Engine thread.
  void Start(EngineCore& core, internal::PrefillStart start);
  void OnPulled(EngineCore& core, const HistoryPull::Result& result);
  void Compute(EngineCore& core);
  void SendWantsHistory();
  void OnProgress(EngineCore& core, const PrefillProgress& progress);
  void OnPrefilled(EngineCore& core, const absl::Status& status);
  void OnSent(EngineCore& core, const absl::Status& status, const SendStats& stats);
  void Cancel(EngineCore& core, const absl::Status& why);
  absl::Status BeginTransfer();
  void GiveBlocks(EngineCore& core);
  void Answer(const absl::Status& status);
  // The call's spans: "prefill", and below it "prefill.queued", "prefill.compute" and "kv.send".
  void RecordTrace(const absl::Status& status) const;

  PrefillService* const service_;
  WorkerRuntime* const runtime_;
  const TraceContext caller_;
  std::shared_ptr<Stream> stream_;

  // Engine thread only.
  SequenceId id_ = 0;
  internal::PrefillStart start_;
  KvPeer peer_;
  std::shared_ptr<KvSender> sender_;
  std::shared_ptr<KvSender::Transfer> transfer_;
  std::shared_ptr<HistoryPull> pull_;  // While it is under way.
  int history_tokens_ = 0;
  std::vector<BlockId> blocks_;  // Retained while the sender may read them; empty before the first piece.
  bool ended_ = false;           // The sequence is no longer the engine's.
  bool sent_ = false;            // The sender is done, whatever became of it.
  bool answered_ = false;
  absl::Status failure_;         // Why the call was cancelled, while the sender is stopping.
  int cached_tokens_ = 0;
  MonotonicTime received_ = absl::ZeroDuration();
  MonotonicTime first_progress_ = absl::ZeroDuration();
  MonotonicTime computed_ = absl::ZeroDuration();
  SendStats send_stats_;  // How sending ended.
  absl::Status send_status_;
};

}  // namespace baton

#endif  // BATON_PREFILL_WORKER_PREFILL_CALL_SERVICE_H_
