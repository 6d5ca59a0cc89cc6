// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_MODEL_SEEKER_H_
#define BATON_ROUTER_MODEL_SEEKER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "router/cluster_view.h"
#include "router/model_text_client.h"
#include "router/served_model.h"

namespace baton {

// For a router that was given no model: gets tokenizer and chat template from the first worker that tells them, checked by the
// fingerprint that the worker registered with. Owns a thread, which ends with that. Thread-safe.
class ModelSeeker {
 public:
  // Loads what is at `path`, to be called `name`. Takes long; on the seeker's thread.
  using Load = std::function<absl::StatusOr<ServedModel>(const std::string& path, const std::string& name)>;
  // Once, on the seeker's thread, which holds no lock.
  using Found = std::function<void(ServedModel model)>;

  ModelSeeker(std::shared_ptr<const RpcTls> tls, Load load, Found found);
  ~ModelSeeker() { Stop(); }

  // Ends the search: `found` does not run any more, or has returned.
  void Stop();
  // Who may be asked.
  void SetView(std::shared_ptr<const ClusterView> view);
  // Why there is no model yet: nobody to ask, or what became of the last one.
  std::string reason() const;

 private:
  void Run();
  // Whom to ask now; null: nobody. Who failed is asked again after a while.
  const WorkerInfo* NextLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ServedModel> Ask(const WorkerInfo& worker);

  ModelTextClient client_;
  const Load load_;
  const Found found_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const ClusterView> view_ ABSL_GUARDED_BY(mutex_);
  std::map<WorkerRef, MonotonicTime> failed_ ABSL_GUARDED_BY(mutex_);  // When each was asked in vain.
  std::string reason_ ABSL_GUARDED_BY(mutex_) = "no worker has registered";
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_ROUTER_MODEL_SEEKER_H_
