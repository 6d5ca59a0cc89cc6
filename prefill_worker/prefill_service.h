// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_PREFILL_WORKER_PREFILL_SERVICE_H_
#define BATON_PREFILL_WORKER_PREFILL_SERVICE_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "baton/internal/prefill.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/kv_transfer/kv_sender.h"
#include "common/worker/worker_runtime.h"

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
  void StopSenders();

  int num_open_calls() const { return num_open_calls_.load(); }

  // The link to the decode worker at `address`, made at first use and kept. Past the bound, links that no call uses are closed,
  // the longest unused first.
  std::shared_ptr<KvSender> SenderTo(const std::string& address);

 private:
  friend class PrefillCall;
  struct SenderEntry {
    std::shared_ptr<KvSender> sender;
    uint64_t last_use = 0;
  };

  WorkerRuntime* const runtime_;
  std::atomic<int> num_open_calls_{0};
  std::atomic<SequenceId> next_sequence_{1};
  Mutex mutex_;
  std::map<std::string, SenderEntry> senders_ ABSL_GUARDED_BY(mutex_);
  uint64_t use_counter_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread closer_ ABSL_GUARDED_BY(mutex_);  // Closes links: that waits for the peer.
};

}  // namespace baton

#endif  // BATON_PREFILL_WORKER_PREFILL_SERVICE_H_
