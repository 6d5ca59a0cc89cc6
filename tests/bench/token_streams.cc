// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/token_streams.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace baton::bench {

Pacer::Pacer(int num_workers) : workers_(static_cast<size_t>(num_workers)), thread_("pacer", [this] { Run(); }) {}

Pacer::~Pacer() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.Join();
}

void Pacer::SetRate(double tokens_per_second) {
  {
    MutexLock lock(&mutex_);
    rate_ = tokens_per_second;
    lateness_ = absl::ZeroDuration();
  }
  changed_.NotifyAll();
}

void Pacer::Add(int worker, const std::shared_ptr<PacedStream>& stream) {
  {
    MutexLock lock(&mutex_);
    workers_[static_cast<size_t>(worker)].push_back(stream);
  }
  stream->Release(1);
}

absl::Duration Pacer::TakeLateness() {
  MutexLock lock(&mutex_);
  return std::exchange(lateness_, absl::ZeroDuration());
}

void Pacer::Step(Streams* streams) {
  for (const auto& weak : *streams) {
    if (auto stream = weak.lock()) stream->Release(1);
  }
}

void Pacer::Run() {
  size_t next = 0;  // The worker whose turn it is.
  MonotonicTime due = Clock::Real()->Now();
  while (true) {
    Streams streams;
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      const MonotonicTime now = Clock::Real()->Now();
      if (rate_ <= 0) {
        changed_.WaitFor(&mutex_, absl::Seconds(1));
        due = Clock::Real()->Now();
        continue;
      }
      if (due > now) {
        changed_.WaitFor(&mutex_, due - now);
        continue;
      }
      lateness_ = std::max(lateness_, now - due);
      due += absl::Seconds(1 / rate_ / static_cast<double>(workers_.size()));
      Streams& all = workers_[next];
      std::erase_if(all, [](const auto& weak) { return weak.expired(); });
      streams = all;
      next = (next + 1) % workers_.size();
    }
    Step(&streams);
  }
}

}  // namespace baton::bench
