// SPDX-License-Identifier: Apache-2.0
#include "common/engine/engine.h"

#include <atomic>
#include <utility>

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

namespace baton {
namespace {

constexpr absl::Duration kIdleTurn = absl::Milliseconds(100);

}  // namespace

class Engine::Impl {
 public:
  Impl(std::unique_ptr<EngineCore> core, const std::string& thread_name, size_t inbox_capacity)
      : core_(std::move(core)), inbox_(inbox_capacity), stats_(core_->stats()) {
    thread_ = Thread(thread_name, [this] { Run(); });
  }

  ~Impl() { Stop(); }

  void Stop() {
    inbox_.Close();
    stopping_.store(true);
    thread_.Join();
    // What was not run is destroyed while the core still exists: closures may own what refers to it.
    while (inbox_.TryPop().has_value()) {
    }
  }

  BoundedQueue<Task>& inbox() { return inbox_; }
  uint64_t heartbeat() const { return heartbeat_.load(std::memory_order_relaxed); }
  EngineStats stats() const {
    MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  void Run() {
    while (!stopping_.load()) {
      Serve();
      const bool worked = core_->Step([this] { Serve(); });
      PublishStats();
      if (worked) continue;
      if (auto task = inbox_.Pop(kIdleTurn)) {
        (*task)(*core_);
        PublishStats();
      }
    }
  }

  // Runs what is queued now. Not what that queues: a task that posts itself again must not hold up the step.
  void Serve() {
    heartbeat_.fetch_add(1, std::memory_order_relaxed);
    const size_t num_tasks = inbox_.size();
    if (num_tasks == 0) return;
    for (size_t i = 0; i < num_tasks && !stopping_.load(); ++i) {
      auto task = inbox_.TryPop();
      if (!task.has_value()) break;
      (*task)(*core_);
    }
    PublishStats();
  }

  void PublishStats() {
    const EngineStats stats = core_->stats();
    MutexLock lock(&mutex_);
    stats_ = stats;
  }

  const std::unique_ptr<EngineCore> core_;  // Of the engine thread, once that runs.
  BoundedQueue<Task> inbox_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> heartbeat_ = 0;
  mutable Mutex mutex_;
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

Engine::Engine(std::unique_ptr<EngineCore> core, std::string thread_name, size_t inbox_capacity)
    : impl_(std::make_unique<Impl>(std::move(core), thread_name, inbox_capacity)) {}
Engine::~Engine() = default;
void Engine::Stop() { impl_->Stop(); }

bool Engine::TryPost(Task task) { return impl_->inbox().TryPush(std::move(task)); }
bool Engine::Post(Task task) { return impl_->inbox().ForcePush(std::move(task)); }
EngineStats Engine::stats() const { return impl_->stats(); }
uint64_t Engine::heartbeat() const { return impl_->heartbeat(); }

}  // namespace baton
