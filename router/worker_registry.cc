// SPDX-License-Identifier: Apache-2.0
#include "router/worker_registry.h"

#include <algorithm>
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
  view_options_ = options.view;
  RebuildLocked();
}

void WorkerRegistry::SetTokenizer(int vocab_size, const std::string& fingerprint) {
  {
    MutexLock lock(&mutex_);
    view_options_.vocab_size = vocab_size;
    view_options_.tokenizer_fingerprint = fingerprint;
    RebuildLocked();
  }
  TellListener({});
}

void WorkerRegistry::SetListener(Listener listener) { listener_ = std::move(listener); }

absl::StatusOr<uint64_t> WorkerRegistry::Connect(const internal::WorkerIdentity& identity, MonotonicTime now,
                                                 Tell tell) {
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
    session.tell = std::move(tell);
    RebuildLocked();
  }
  TellListener(lost);
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
  TellListener({});
  return true;
}

void WorkerRegistry::ReportCache(uint64_t session, const internal::CacheUpdate& update) {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  WorkerInfo& info = it->second.info;
  std::optional<uint64_t>& sequence = it->second.cache_sequence;
  if (update.snapshot()) {
    info.cached = CachedPrefixes::Of(update.added());
  } else if (sequence && update.sequence() == *sequence + 1) {
    info.cached = info.cached->With(update.added(), update.removed());
  } else {  // Something was missed.
    info.cached = nullptr;
    sequence.reset();
    return;
  }
  sequence = update.sequence();
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
  TellListener(lost);
}

absl::Status WorkerRegistry::UnknownLocked(const std::string& id) const {
  std::vector<std::string> known;
  for (const auto& [session_id, session] : sessions_) known.push_back(session.info.ref.id);
  return absl::NotFoundError(absl::StrCat("no worker ", ReplaceInvalidUtf8(id), " is registered here; ",
                                          known.empty() ? "none is" : absl::StrJoin(known, ", ")));
}

absl::Status WorkerRegistry::Drain(const std::string& id) const {
  Tell tell;
  {
    MutexLock lock(&mutex_);
    for (const auto& [session_id, session] : sessions_) {
      if (session.info.ref.id == id) tell = session.tell;
    }
    if (tell == nullptr) return UnknownLocked(id);
  }
  tell(internal::ROLE_UNSPECIFIED);
  return absl::OkStatus();
}

absl::Status WorkerRegistry::SetRole(const std::string& id, internal::WorkerRole role) {
  if (role != internal::PREFILL && role != internal::DECODE) return absl::InvalidArgumentError("role is none of prefill, decode");
  Tell tell;
  {
    MutexLock lock(&mutex_);
    const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) { return entry.second.info.ref.id == id; });
    if (found == sessions_.end() || found->second.tell == nullptr) return UnknownLocked(id);
    Session& session = found->second;
    const WorkerInfo& info = session.info;
    if (info.identity.role() == role) return absl::OkStatus();
    if (!info.identity.changes_role()) {
      return absl::FailedPreconditionError(absl::StrCat("worker ", id, " (version ", info.identity.version(), ") cannot change its role: the program of a ",
                                                        RoleName(role), " worker is not beside its own, or its release is too old"));
    }
    if (info.load.draining()) return absl::FailedPreconditionError(absl::StrCat("worker ", id, " is draining"));
    std::vector<WorkerInfo> others;
    for (const auto& [session_id, other] : sessions_) {
      if (other.info.ref != info.ref && !other.changes_role) others.push_back(other.info);
    }
    const auto without = BuildClusterView(std::move(others), view_options_);
    if (view_->ready && !without->ready) {
      return absl::FailedPreconditionError(absl::StrCat("worker ", id, " is needed as it is; without it: ", without->reason));
    }
    session.changes_role = true;
    tell = session.tell;
  }
  tell(role);
  return absl::OkStatus();
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
  TellListener(lost);
}

std::shared_ptr<const ClusterView> WorkerRegistry::View() const {
  MutexLock lock(&mutex_);
  return view_;
}

void WorkerRegistry::RebuildLocked() {
  std::vector<WorkerInfo> workers;
  workers.reserve(sessions_.size());
  for (const auto& [id, session] : sessions_) workers.push_back(session.info);
  view_ = BuildClusterView(std::move(workers), view_options_);
}

void WorkerRegistry::TellListener(const std::vector<std::pair<WorkerRef, std::string>>& lost) const {
  // First the view without them, so that what is lost is not sent there again.
  if (listener_.on_change) listener_.on_change();
  if (listener_.on_lost) {
    for (const auto& [worker, reason] : lost) listener_.on_lost(worker, reason);
  }
}

}  // namespace baton
