// SPDX-License-Identifier: Apache-2.0
#include "router/worker_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/utf8.h"

namespace baton {
namespace {

absl::Status CheckIdentity(const internal::WorkerIdentity& identity) {
  if (identity.id().empty()) return absl::InvalidArgumentError("worker identity: id is empty");
  auto missing = [&](absl::string_view field) {
    return absl::InvalidArgumentError(absl::StrCat("worker identity of ", identity.id(), ": ", field, " is missing"));
  };
  if (identity.incarnation() == 0) return missing("incarnation");
  if (identity.role() != internal::PREFILL && identity.role() != internal::DECODE) return missing("role");
  if (identity.address().empty()) return missing("address");
  if (identity.model_fingerprint().empty()) return missing("model_fingerprint");
  if (identity.kv_layout().empty()) return missing("kv_layout");
  return absl::OkStatus();
}

}  // namespace

WorkerRegistry::WorkerRegistry(const WorkerRegistryOptions& options) : options_(options) {
  MutexLock lock(&mutex_);
  RebuildLocked();
}

void WorkerRegistry::SetListener(Listener listener) { listener_ = std::move(listener); }

absl::StatusOr<uint64_t> WorkerRegistry::Connect(const internal::WorkerIdentity& identity, MonotonicTime now,
                                                 std::function<void()> drain) {
  if (absl::Status status = CheckIdentity(identity); !status.ok()) return status;
  std::vector<std::pair<WorkerRef, std::string>> lost;
  uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      const WorkerInfo& known = it->second.info;
      if (known.ref.id != identity.id()) {
        ++it;
        continue;
      }
      const bool same_run = known.ref.incarnation == identity.incarnation();
      if (!same_run && known.identity.address() != identity.address() && !known.silent) {
        return absl::AlreadyExistsError(absl::StrCat("worker id ", identity.id(), " at ", identity.address(),
                                                     " is taken by the worker at ", known.identity.address()));
      }
      if (!same_run) lost.emplace_back(known.ref, "another run of this worker has registered");
      it = sessions_.erase(it);
    }
    id = next_session_++;
    Session& session = sessions_[id];
    session.info.ref = {identity.id(), identity.incarnation()};
    session.info.identity = identity;
    session.last_report = now;
    session.drain = std::move(drain);
    RebuildLocked();
  }
  Tell(lost);
  return id;
}

bool WorkerRegistry::Report(uint64_t session, const internal::WorkerLoad& load, MonotonicTime now) {
  {
    MutexLock lock(&mutex_);
    auto it = sessions_.find(session);
    if (it == sessions_.end()) return false;
    WorkerInfo& info = it->second.info;
    info.load = load;
    info.has_load = true;
    info.silent = false;
    it->second.lost = false;
    ++info.load_sequence;
    it->second.last_report = now;
    RebuildLocked();
  }
  Tell({});
  return true;
}

void WorkerRegistry::Disconnect(uint64_t session) {
  std::vector<std::pair<WorkerRef, std::string>> lost;
  {
    MutexLock lock(&mutex_);
    auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    const WorkerInfo& info = it->second.info;
    if (info.silent && !it->second.lost) {
      lost.emplace_back(info.ref, absl::StrCat("worker ", info.ref.id, " was silent and its session has ended"));
    }
    sessions_.erase(it);
    RebuildLocked();
  }
  Tell(lost);
}

absl::Status WorkerRegistry::Drain(const std::string& id) const {
  std::function<void()> drain;
  std::vector<std::string> known;
  {
    MutexLock lock(&mutex_);
    for (const auto& [session_id, session] : sessions_) {
      if (session.info.ref.id == id) drain = session.drain;
      known.push_back(session.info.ref.id);
    }
  }
  if (drain != nullptr) {
    drain();
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("no worker ", ReplaceInvalidUtf8(id), " is registered here; ",
                                          known.empty() ? "none is" : absl::StrJoin(known, ", ")));
}

void WorkerRegistry::Tick(MonotonicTime now) {
  std::vector<std::pair<WorkerRef, std::string>> lost;
  {
    MutexLock lock(&mutex_);
    // A router that did not run itself (stopped, starved) has not listened either: that time is not the workers' silence.
    if (last_tick_ && now - *last_tick_ > options_.heartbeat) {
      for (auto& [id, session] : sessions_) session.last_report += now - *last_tick_;
    }
    last_tick_ = now;
    bool changed = false;
    for (auto& [id, session] : sessions_) {
      const absl::Duration silence = now - session.last_report;
      if (silence <= options_.silent_after * options_.heartbeat) continue;
      changed = changed || !session.info.silent;
      session.info.silent = true;
      if (session.lost || silence <= options_.lost_after * options_.heartbeat) continue;
      session.lost = true;
      lost.emplace_back(session.info.ref, absl::StrCat("worker ", session.info.ref.id, " is silent for ",
                                                       absl::FormatDuration(silence)));
    }
    if (changed) RebuildLocked();
    if (!changed && lost.empty()) return;
  }
  Tell(lost);
}

std::shared_ptr<const ClusterView> WorkerRegistry::View() const {
  MutexLock lock(&mutex_);
  return view_;
}

void WorkerRegistry::RebuildLocked() {
  std::vector<WorkerInfo> workers;
  workers.reserve(sessions_.size());
  for (const auto& [id, session] : sessions_) workers.push_back(session.info);
  view_ = BuildClusterView(std::move(workers), options_.view);
}

void WorkerRegistry::Tell(const std::vector<std::pair<WorkerRef, std::string>>& lost) const {
  // First the view without them, so that what is lost is not sent there again.
  if (listener_.on_change) listener_.on_change();
  if (listener_.on_lost) {
    for (const auto& [worker, reason] : lost) listener_.on_lost(worker, reason);
  }
}

}  // namespace baton
