// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_STREAM_H_
#define BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_STREAM_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

namespace baton::cuda_sim {

// A point in a stream's work, shared by those who wait for it. Any thread.
class Completion {
 public:
  void Finish();
  bool finished() const;
  // False: still unfinished after the longest wait (a minute): a deadlock of the test.
  bool Wait();

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// Work in order on a thread of its own, so that what nobody waits for really happens at another time. In lazy mode it runs only
// while somebody waits. Any thread enqueues.
class SimStream {
 public:
  explicit SimStream(const std::atomic<bool>* lazy);
  ~SimStream();  // Runs what is left first.

  void Enqueue(std::function<void()> work);
  // From now on work is put down instead of done, until EndCapture returns it.
  void BeginCapture();
  std::vector<std::function<void()>> EndCapture();
  bool capturing() const;
  // When all that is enqueued now is done.
  std::shared_ptr<Completion> Marker();
  // Lets a lazy stream run what it has.
  void Nudge();
  bool idle() const;

 private:
  void RunLoop();

  const std::atomic<bool>* const lazy_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool capturing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> captured_ ABSL_GUARDED_BY(mutex_);
  size_t allowed_ ABSL_GUARDED_BY(mutex_) = 0;  // Of the front of work_, in lazy mode.
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace baton::cuda_sim

#endif  // BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_STREAM_H_
