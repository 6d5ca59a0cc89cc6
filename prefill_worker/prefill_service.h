// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_PREFILL_WORKER_PREFILL_SERVICE_H_
#define BATON_PREFILL_WORKER_PREFILL_SERVICE_H_

#include <atomic>
#include <map>
#include <string>

#include "baton/internal/prefill.grpc.pb.h"
#include "common/worker/worker_runtime.h"
#include "prefill_worker/kv_links.h"

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

  // Stops every sender; before the engine stops.
  void StopSenders() { links_.Stop(); }

  int num_open_calls() const { return num_open_calls_.load(); }

  // Adds which transport each decode worker was last sent by. Any thread.
  void AddLinks(internal::WorkerLoad* load) const;

 private:
  friend class PrefillCall;
  KvLinksOptions LinksOptions();

  WorkerRuntime* const runtime_;
  std::atomic<int> num_open_calls_{0};
  std::atomic<SequenceId> next_sequence_{1};
  KvLinks links_;
};

}  // namespace baton

#endif  // BATON_PREFILL_WORKER_PREFILL_SERVICE_H_
