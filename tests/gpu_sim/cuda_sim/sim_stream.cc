// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/cuda_sim/sim_stream.h"

#include <utility>

#include "absl/time/time.h"

namespace baton::cuda_sim {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr int kMaxLooks = 60;

}  // namespace

void Completion::Finish() {
  MutexLock lock(&mutex_);
  finished_ = true;
  changed_.NotifyAll();
}

bool Completion::finished() const {
  MutexLock lock(&mutex_);
  return finished_;
}

bool Completion::Wait() {
  MutexLock lock(&mutex_);
  for (int look = 0; !finished_ && look < kMaxLooks;) look += changed_.WaitFor(&mutex_, kLook) ? 0 : 1;
  return finished_;
}

SimStream::SimStream(const std::atomic<bool>* lazy) : lazy_(lazy), thread_("sim stream", [this] { RunLoop(); }) {}

SimStream::~SimStream() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void SimStream::BeginCapture() {
  MutexLock lock(&mutex_);
  capturing_ = true;
}

std::vector<std::function<void()>> SimStream::EndCapture() {
  MutexLock lock(&mutex_);
  capturing_ = false;
  return std::exchange(captured_, {});
}

bool SimStream::capturing() const {
  MutexLock lock(&mutex_);
  return capturing_;
}

void SimStream::Enqueue(std::function<void()> work) {
  MutexLock lock(&mutex_);
  if (capturing_) return captured_.push_back(std::move(work));
  work_.push_back(std::move(work));
  changed_.NotifyAll();
}

std::shared_ptr<Completion> SimStream::Marker() {
  auto completion = std::make_shared<Completion>();
  Enqueue([completion] { completion->Finish(); });
  return completion;
}

void SimStream::Nudge() {
  MutexLock lock(&mutex_);
  allowed_ = work_.size();
  changed_.NotifyAll();
}

bool SimStream::idle() const {
  MutexLock lock(&mutex_);
  return work_.empty() && !running_;
}

void SimStream::RunLoop() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      running_ = false;
      while (work_.empty() || (*lazy_ && allowed_ == 0 && !ending_)) {
        if (work_.empty() && ending_) return;
        changed_.WaitFor(&mutex_, kLook);
      }
      work = std::move(work_.front());
      work_.pop_front();
      if (allowed_ > 0) --allowed_;
      running_ = true;
    }
    work();
  }
}

}  // namespace baton::cuda_sim
