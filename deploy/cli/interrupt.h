// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_INTERRUPT_H_
#define BATON_DEPLOY_CLI_INTERRUPT_H_

#include <functional>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

namespace baton::cli {

// Turns Ctrl-C (SIGINT) into a call, for as long as the object lives. Made before any other thread, which inherit the
// blocked signal.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();

  // What Ctrl-C does now: null does nothing. Called on a thread of its own; once this returns, the callback before is not
  // running any more.
  void SetHandler(std::function<void()> handler);

 private:
  void Run();

  Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> handler_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_INTERRUPT_H_
