// SPDX-License-Identifier: Apache-2.0
#include "router/timers.h"

namespace baton {

Timers::Timers() : thread_("timers", [this] { Run(); }) {}

Timers::~Timers() { Stop(); }

Timers::Id Timers::Schedule(MonotonicTime at, std::function<void()> callback) {
  Id id;
  bool sooner;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
    if (stopped_) return id;
    pending_.emplace(std::pair(at, id), std::move(callback));
    times_.emplace(id, at);
    sooner = at < sleeps_until_;
  }
  // A request sets several timers that nothing comes of: waking the thread for each would cost more than all else here.
  if (sooner) changed_.NotifyOne();
  return id;
}

void Timers::Cancel(Id id) {
  std::function<void()> dropped;  // Destroyed without the lock: it may hold the last reference to something.
  MutexLock lock(&mutex_);
  auto it = times_.find(id);
  if (it == times_.end()) return;
  auto entry = pending_.find({it->second, id});
  dropped = std::move(entry->second);
  pending_.erase(entry);
  times_.erase(it);
}

void Timers::Stop() {
  decltype(pending_) dropped;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    dropped.swap(pending_);
    times_.clear();
  }
  changed_.NotifyAll();
  thread_.Join();
}

void Timers::Run() {
  for (;;) {
    std::function<void()> due;
    {
      MutexLock lock(&mutex_);
      if (stopped_) return;
      const MonotonicTime now = Clock::Real()->Now();
      if (pending_.empty() || pending_.begin()->first.first > now) {
        const absl::Duration sleep = pending_.empty() ? absl::Minutes(1) : pending_.begin()->first.first - now;
        sleeps_until_ = now + sleep;
        changed_.WaitFor(&mutex_, sleep);
        sleeps_until_ = -absl::InfiniteDuration();  // Awake: it looks again before it sleeps.
        continue;
      }
      auto first = pending_.begin();
      times_.erase(first->first.second);
      due = std::move(first->second);
      pending_.erase(first);
    }
    due();
  }
}

}  // namespace baton
