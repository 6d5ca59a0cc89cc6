// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_PREFILL_WORKER_PREFILL_SERVICE_H_
#define BATON_PREFILL_WORKER_PREFILL_SERVICE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "baton/internal/prefill.grpc.pb.h"
#include "common/kv_transfer/transports/kv_links.h"
#include "common/kv_transfer/transports/kv_receiver_set.h"
#include "common/worker/worker_runtime.h"
#include "prefill_worker/history_pull.h"
#include "prefill_worker/pull_policy.h"

namespace baton {

class PrefillCall;

// The prefill worker's service: one call is one attempt at one transfer. Thread-safe.
class PrefillService final : public internal::PrefillWorker::CallbackService {
 public:
  // `runtime` outlives the service.
  explicit PrefillService(WorkerRuntime* runtime);
  ~PrefillService() override;

  grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* Prefill(
      grpc::CallbackServerContext* context) override;

  // Opens the KV links that histories come by. `address` is where others reach this worker's gRPC server. Once, before the
  // first call; without it nothing is pulled.
  void StartReceivers(const std::string& address);
  // Served beside this one; null when gRPC is not among the transports, or nothing is pulled.
  grpc::Service* kv_link_service() { return receivers_.grpc_service(); }

  // Stops every sender and receiver; after the server, before the engine stops.
  void StopLinks();

  int num_open_calls() const { return num_open_calls_.load(); }

  // Adds which transport each decode worker was last sent by, and what pulls take. Any thread.
  void AddLoad(internal::WorkerLoad* load) const;

 private:
  friend class PrefillCall;
  using PullName = std::pair<TransferId, int>;
  KvReceiverSetOptions ReceiverOptions() const;
  KvReceiverEvents ReceiverEvents();
  void NotePullRates();

  // ---- Engine thread.
  // Asks for what decode has cached of the prompt of `start` and this worker has not, where that is worth it; null where it is
  // not. `on_end`: as HistoryPull::Begin.
  std::shared_ptr<HistoryPull> StartPull(EngineCore& core, const internal::PrefillStart& start, const CacheKey& key,
                                         HistoryPull::OnEnd on_end);
  void OnPullEnded(const PullName& name, const PullPolicy::Source& source, const HistoryPull::Result& result);
  void WithPull(const PullName& name, const std::function<void(EngineCore&, HistoryPull*)>& event);

  WorkerRuntime* const runtime_;
  std::atomic<int> num_open_calls_{0};
  std::atomic<SequenceId> next_sequence_{1};
  KvLinks links_;
  LandingDirectory directory_;
  KvReceiverSet receivers_;
  PullPolicy pull_policy_;
  std::map<PullName, std::shared_ptr<HistoryPull>> pulls_;  // Engine thread only.
  std::atomic<double> history_ms_{0}, history_ms_per_token_{0};
};

}  // namespace baton

#endif  // BATON_PREFILL_WORKER_PREFILL_SERVICE_H_
