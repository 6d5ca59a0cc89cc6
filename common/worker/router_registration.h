// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_ROUTER_REGISTRATION_H_
#define BATON_COMMON_WORKER_ROUTER_REGISTRATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "baton/internal/registry.pb.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

namespace baton {

class RpcTls;

// Keeps this worker registered with one router: a stream with the identity first, then a load report per heartbeat, and what has
// changed in its prefix cache; opened again whenever it breaks, when ReconnectPolicy says. Owns a thread.
class RouterRegistration {
 public:
  using LoadProvider = std::function<internal::WorkerLoad()>;
  // What the prefix cache holds now; nothing when it cannot be said. On the registration's thread; may wait a moment.
  using CacheProvider = std::function<std::optional<std::vector<uint64_t>>()>;
  struct Options {
    std::shared_ptr<const RpcTls> tls;  // Null: in the clear.
    std::string api_key_file;        // The key that the router wants, read at each registration; empty: none.
    std::function<void()> on_drain;  // The router says: finish and end. On a gRPC thread; must not block.
    std::function<void(internal::WorkerRole)> on_role;  // Finish and come back as this. The same.
    CacheProvider cached;            // Null: nothing is told of the cache.
  };
  RouterRegistration(std::string router_address, internal::WorkerIdentity identity, LoadProvider load, Options options);
  // Closes the stream, so that the router forgets the worker at once.
  ~RouterRegistration();

  // Sends a load report now (a drain should not wait for the next heartbeat).
  void ReportNow();
  bool registered() const;

 private:
  struct Session;
  void Run();
  void RunSession();
  absl::Status AddKey(Session& session) const;

  const std::string address_;
  const internal::WorkerIdentity identity_;
  const LoadProvider load_;
  const Options options_;
  mutable Mutex mutex_;
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool report_now_ ABSL_GUARDED_BY(mutex_) = false;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_ROUTER_REGISTRATION_H_
