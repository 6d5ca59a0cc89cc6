// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_WORKER_REGISTRY_H_
#define BATON_ROUTER_WORKER_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "baton/internal/registry.pb.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "router/cluster_view.h"

namespace baton {

struct WorkerRegistryOptions {
  ClusterViewOptions view;
  absl::Duration heartbeat = absl::Milliseconds(500);
  // In heartbeats. A starved worker may be late and well: new work goes elsewhere first, what runs there is cut only later.
  int silent_after = 2;
  int lost_after = 6;
};

// Who is in the cluster. A session is one Register stream; a worker is out at once when its session ends. Thread-safe;
// `now` is an argument, so that tests own the time.
class WorkerRegistry {
 public:
  // Called after every change, on the thread that caused it, with no lock held; calls may overlap, so a listener asks for
  // View() instead of remembering an order.
  struct Listener {
    std::function<void()> on_change;
    // What still runs there is lost: it was silent for long, its session ended while it was silent, or another run took its
    // place. Not called when the session of a worker that was heard ends: calls to a process that died end by themselves, and
    // calls to one that lives go on.
    std::function<void(const WorkerRef& worker, const std::string& reason)> on_lost;
  };

  // Tells a worker to finish what runs and then end (ROLE_UNSPECIFIED), or come back in a role.
  using Tell = std::function<void(internal::WorkerRole next)>;

  explicit WorkerRegistry(const WorkerRegistryOptions& options);

  // Once, before the first Connect.
  void SetListener(Listener listener);

  // Opens a session. A worker that is known already under the same id is replaced when it is the same run, at the same
  // address, or silent.
  //   INVALID_ARGUMENT  id, incarnation, role, address, fingerprint or layout is missing.
  //   ALREADY_EXISTS    another live worker has this id; the message has both addresses.
  // `tell`: any thread, while the session lasts and a little longer.
  absl::StatusOr<uint64_t> Connect(const internal::WorkerIdentity& identity, MonotonicTime now, Tell tell = nullptr);
  // False when the session was replaced: the stream has nothing more to say.
  bool Report(uint64_t session, const internal::WorkerLoad& load, MonotonicTime now);
  // What has changed in a worker's prefix cache. Shows in the view with the next report.
  void ReportCache(uint64_t session, const internal::CacheUpdate& update);
  void Disconnect(uint64_t session);
  // Tells a worker to finish what runs and end.
  //   NOT_FOUND  none of that id is here; the message has those that are.
  absl::Status Drain(const std::string& id) const;
  // Tells a worker to finish what runs and come back as the other role. OK, and nothing is said, where it has `role`.
  //   INVALID_ARGUMENT     `role` is none.
  //   NOT_FOUND            as Drain.
  //   FAILED_PRECONDITION  it cannot (see WorkerIdentity.changes_role), it drains already, or the cluster is ready and would not be
  //                        without it.
  absl::Status SetRole(const std::string& id, internal::WorkerRole role);
  // Finds silent workers. Call at least twice per heartbeat: a longer gap is taken for a pause of the router itself.
  void Tick(MonotonicTime now);

  // The router has got its tokenizer: workers are held to it from now on.
  void SetTokenizer(int vocab_size, const std::string& fingerprint);

  std::shared_ptr<const ClusterView> View() const;
  const WorkerRegistryOptions& options() const { return options_; }

 private:
  struct Session {
    WorkerInfo info;
    MonotonicTime last_report;
    bool lost = false;  // Told so, and not heard since.
    Tell tell;
    bool changes_role = false;  // Was told to: it is about to leave.
    std::optional<uint64_t> cache_sequence;  // Of the last update that `info.cached` has; nothing before a snapshot.
  };
  absl::Status UnknownLocked(const std::string& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RebuildLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellListener(const std::vector<std::pair<WorkerRef, std::string>>& lost) const;

  const WorkerRegistryOptions options_;
  Listener listener_;
  mutable Mutex mutex_;
  ClusterViewOptions view_options_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Session> sessions_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  std::optional<MonotonicTime> last_tick_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ClusterView> view_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_ROUTER_WORKER_REGISTRY_H_
