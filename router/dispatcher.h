// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_DISPATCHER_H_
#define BATON_ROUTER_DISPATCHER_H_

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "router/admission.h"
#include "router/task_pool.h"

namespace baton {

// Admission behind a lock: requests of all threads ask here for their credits. Thread-safe. Answers to the asking call come
// before it returns, answers to others on `tasks`; in both cases with no lock held.
class Dispatcher {
 public:
  using Answer = std::function<void(absl::StatusOr<Route>)>;

  // `tasks` outlives this, and runs nothing that takes long or waits.
  Dispatcher(const AdmissionOptions& options, std::unique_ptr<RoutePolicy> policy, uint64_t seed, TaskPool* tasks);

  // `answer` runs exactly once, unless Forget comes first. Returns the ticket to forget; request.ticket is ignored.
  uint64_t Acquire(RouteRequest request, Answer answer);
  // The answer may be on its way all the same.
  void Forget(uint64_t ticket);
  void Release(const WorkerRef& worker, int64_t num_tokens, bool refused);

  // See Admission.
  void EndRecovery(const WorkerRef& decode);

  void SetView(std::shared_ptr<const ClusterView> view);
  void Tick();

  size_t num_waiting() const;
  size_t num_recoveries_waiting() const;
  size_t num_waiting_for(internal::WorkerRole role) const;
  int open_calls(const WorkerRef& worker) const;

 private:
  // Takes the answers that belong to `grants` out of answers_.
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> Match(std::vector<Grant> grants) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerOthers(std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers);

  TaskPool* const tasks_;
  mutable Mutex mutex_;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Answer> answers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace baton

#endif  // BATON_ROUTER_DISPATCHER_H_
