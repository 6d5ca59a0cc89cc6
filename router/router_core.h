// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_ROUTER_CORE_H_
#define BATON_ROUTER_ROUTER_CORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/metrics.h"
#include "common/base/mutex.h"
#include "common/trace/tracer.h"
#include "router/admission.h"
#include "router/api_keys.h"
#include "router/cors.h"
#include "router/dispatcher.h"
#include "router/landed_prompts.h"
#include "router/model_seeker.h"
#include "router/preparation_pool.h"
#include "router/prepared_request.h"
#include "router/request_flow.h"
#include "router/router_metrics.h"
#include "router/served_model.h"
#include "router/task_pool.h"
#include "router/timers.h"
#include "router/worker_client.h"
#include "router/worker_registry.h"

namespace baton {

class Generation;

struct RouterCoreOptions {
  Disaggregate disaggregate = Disaggregate::kAlways;
  std::string policy = "prefix_aware";
  AdmissionOptions admission;  // Its `disaggregate` is set from the one above.
  FlowOptions flow;
  absl::Duration heartbeat = absl::Milliseconds(500);
  size_t max_request_bytes = 64 << 20;  // Of one client's request, in both APIs. What workers send has its own bounds.
  PreparationOptions preparation;
  absl::Duration sse_keepalive = absl::Seconds(15);  // See HttpGeneration; 0: never.
  Cors cors;
  std::shared_ptr<ApiKeys> api_keys;  // Null: nobody is asked for one.
  std::shared_ptr<const RpcTls> cluster_tls;  // Of calls to workers, and where they register; null: in the clear.
  bool vllm_metrics = false;  // vLLM's names at /metrics as well.
  TracerOptions trace;  // Its `instance` is set to the router's id.
  ModelSeeker::Load load_model;  // Of workers' files, where the router is given no model; then never null.
};

// What all requests share: the cluster, the queue, connections, timers. Everything here is thread-safe by itself.
class RouterCore {
 public:
  //   INVALID_ARGUMENT  unknown policy; and codes of Tracer::Create.
  static absl::StatusOr<std::unique_ptr<RouterCore>> Create(const RouterCoreOptions& options, ServedModel model,
                                                            MetricRegistry* metrics);
  // Waits for the calls of generations that have ended (a bounded time: they are cut).
  ~RouterCore();

  // OK when a request could be served; else UNAVAILABLE with the reason.
  absl::Status Ready() const;
  // What the workers that a request may go to can hold.
  //   UNAVAILABLE  no workers, or no model yet, with a retry-after.
  absl::StatusOr<ModelLimits> Limits() const;

  // Told at once and after every change, on the thread that caused it; null: nobody.
  void OnReadyChange(std::function<void(bool ready)> callback);

  // There is a model: the one that the router was given, or that of its workers, once one of them has told it.
  bool has_model() const { return has_model_.load(std::memory_order_acquire); }
  // OK, or UNAVAILABLE with the reason and a retry-after.
  absl::Status ModelStatus() const;

  // Takes nothing new from now on.
  void StartDraining();
  bool draining() const { return draining_; }
  // Waits until every client has its answer. False when `timeout` was not enough.
  bool WaitUntilIdle(absl::Duration timeout);
  // Ends every request that is left, as UNAVAILABLE.
  void CutAll();

  int num_running() const;

  // The account of the caller's key, by its Authorization header; null where no keys are asked for.
  // Whoever shows a certificate of the cluster needs no key to be a worker: nobody else reaches the registry then.
  //   Codes of ApiKeys::Check.
  absl::StatusOr<std::shared_ptr<KeyAccount>> FindKey(absl::string_view authorization, KeyRole needed) const;
  // Its name; empty where no keys are asked for.
  absl::StatusOr<std::string> CheckKey(absl::string_view authorization, KeyRole needed) const;

  const RouterCoreOptions options;
  const std::string router_id;
  const uint64_t incarnation;
  ServedModel model;  // Without tokenizer while there is none. Read it only once has_model() has been true: it does not change any more.
  MetricRegistry* const metric_registry;
  RouterMetrics metrics;
  const std::unique_ptr<Tracer> tracer;
  PreparationPool preparation;
  TaskPool dispatch;  // One thread that starts what was granted: it waits for no prompt to be prepared.
  Timers timers;
  WorkerRegistry registry;
  WorkerClients clients;
  Dispatcher dispatcher;
  LandedPrompts landed_prompts;
  std::atomic<uint64_t> next_transfer{1};

 private:
  friend class Generation;
  RouterCore(const RouterCoreOptions& options, ServedModel model, MetricRegistry* metrics,
             std::unique_ptr<RoutePolicy> policy, std::string router_id, std::unique_ptr<Tracer> tracer);
  void Add(const std::shared_ptr<Generation>& generation);
  void NoteEnded();  // The client has its answer.
  void Remove(Generation* generation);  // And every call has ended.
  std::vector<std::shared_ptr<Generation>> Generations() const;
  void OnViewChange();
  void SetModel(ServedModel found);
  void OnWorkerLost(const WorkerRef& worker, const std::string& reason);
  void ScheduleTick();
  void ScheduleKeyReload();
  void ExportGauges();
  void TellReady();

  Mutex ready_mutex_;
  std::function<void(bool)> on_ready_ ABSL_GUARDED_BY(ready_mutex_);
  std::optional<bool> told_ready_ ABSL_GUARDED_BY(ready_mutex_);
  std::atomic<bool> draining_{false};
  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<Generation*, std::weak_ptr<Generation>> generations_ ABSL_GUARDED_BY(mutex_);
  int num_unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  Mutex view_mutex_;  // Views reach clients and dispatcher in order. Before mutex_; no callback runs under it.
  std::vector<WorkerRef> present_ ABSL_GUARDED_BY(view_mutex_);  // In the last view.
  std::vector<std::shared_ptr<MetricRegistry::Callback>> gauges_;
  std::atomic<bool> has_model_{false};
  std::unique_ptr<ModelSeeker> seeker_;  // Where no model was given. Its thread ends first.
};

}  // namespace baton

#endif  // BATON_ROUTER_ROUTER_CORE_H_
