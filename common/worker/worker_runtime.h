// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WORKER_RUNTIME_H_
#define BATON_COMMON_WORKER_WORKER_RUNTIME_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "baton/internal/registry.pb.h"
#include "common/base/metrics.h"
#include "common/base/mutex.h"
#include "common/engine/engine.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/transfer.h"
#include "common/model/model.h"
#include "common/worker/watchdog.h"
#include "common/worker/worker_options.h"
#include "common/worker/worker_tokenizer.h"

namespace baton {

// Everything of a worker that is not a service: backend, weights, KV pool, engine thread, metrics, and what it reports of
// itself. Services hold a pointer to it.
class WorkerRuntime {
 public:
  // Loads the model and sizes the pool.
  //   INVALID_ARGUMENT / FAILED_PRECONDITION  the model or an option; names it.
  //   RESOURCE_EXHAUSTED  not enough memory for one context; names needed and available bytes.
  static absl::StatusOr<std::unique_ptr<WorkerRuntime>> Create(const WorkerOptions& options);
  // Stops the engine. Services must be gone.
  ~WorkerRuntime();

  const WorkerOptions& options() const { return options_; }
  const std::string& id() const { return options_.id; }
  uint64_t incarnation() const { return incarnation_; }
  int context_length() const { return context_length_; }
  std::string listen_host() const;  // Of the gRPC server's address.
  const Model& model() const { return *model_; }
  const WorkerTokenizer& tokenizer() const { return tokenizer_; }
  KvPool* pool() { return pool_.get(); }
  Engine* engine() { return engine_.get(); }
  MetricRegistry* metrics() { return &metrics_; }
  Tracer* tracer() { return tracer_.get(); }
  KvCompatibility compatibility() const;

  // INVALID_ARGUMENT / FAILED_PRECONDITION for a request that names another model, ids outside the vocabulary or more tokens
  // than the context. Any thread.
  absl::Status CheckTokens(const std::string& model_fingerprint, std::span<const int32_t> tokens) const;

  // What registration says. `address` is where our services listen.
  internal::WorkerIdentity Identity(const std::string& address, const std::string& status_address) const;
  // A snapshot of the engine, with what is offered to one of `num_routers` routers. Any thread.
  internal::WorkerLoad Load(int num_routers) const;

  // From now on new work is refused and the load says draining. Any thread.
  void SetDraining() { draining_.store(true); }
  bool draining() const { return draining_.load(); }

  // Of the backend: once it is not OK, this process can compute nothing more. Any thread.
  absl::Status DeviceStatus() const { return backend_->status(); }
  // OK, or why this worker should take no work (device failed, engine thread stuck, draining).
  absl::Status Ready() const;

  // Shared by both roles' services. `result`: "ok", "failed", or "cancelled" when nothing was wrong with the way.
  void CountTransfer(const std::string& transport, const std::string& result, int64_t bytes);
  // As CountTransfer, of what goes from a decode worker's cache into a prefill worker's. "none" where no transport was found.
  void CountHistory(const std::string& transport, const std::string& result, int64_t bytes);
  // Of a prompt whose KV has arrived. Prefill workers only.
  void ObservePrefill(absl::Duration queued, absl::Duration tail);
  // KV that arrived by it did not verify.
  void CountCorruptTransfer(const std::string& transport);
  // Who came by it to write an attempt had not its token.
  void CountDeniedWriter(const std::string& transport);
  // A better transport than those that are used from now on is broken.
  void CountTransportFallback(const std::string& transport);

 private:
  static absl::StatusOr<std::unique_ptr<WorkerRuntime>> CreateOnThisThread(const WorkerOptions& options);
  WorkerRuntime() = default;
  absl::Status LoadModel();
  absl::Status LoadOnto(const std::shared_ptr<const Checkpoint>& checkpoint);
  absl::Status CreatePool();
  absl::Status AllocatePool(const KvLayout& layout, int num_blocks);
  absl::Status WarmUp();
  void Calibrate();
  void ExportMetrics();
  void ExportState();
  void ExportVllmMetrics();

  WorkerOptions options_;
  uint64_t incarnation_ = 0;
  int context_length_ = 0;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  WorkerTokenizer tokenizer_;
  MachinePeaks peaks_;
  std::unique_ptr<KvPool> pool_;
  MetricRegistry metrics_;
  std::unique_ptr<Tracer> tracer_;
  std::vector<std::shared_ptr<MetricRegistry::Callback>> callbacks_;
  Histogram* prefill_queue_ = nullptr;  // The registry's.
  Histogram* transfer_tail_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> draining_{false};
  // Of the engine thread; asked by Ready.
  mutable Mutex watchdog_mutex_;
  mutable std::optional<Watchdog> watchdog_ ABSL_GUARDED_BY(watchdog_mutex_);
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WORKER_RUNTIME_H_
