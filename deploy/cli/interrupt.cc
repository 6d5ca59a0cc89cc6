// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/interrupt.h"

#include <signal.h>
#include <time.h>

#include <utility>

namespace baton::cli {
namespace {

sigset_t InterruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = Thread("interrupt", [this] { Run(); });
}

InterruptWatch::~InterruptWatch() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.Join();
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void InterruptWatch::SetHandler(std::function<void()> handler) {
  MutexLock lock(&mutex_);
  handler_ = std::move(handler);
}

void InterruptWatch::Run() {
  const sigset_t set = InterruptSet();
  const timespec turn = {.tv_sec = 0, .tv_nsec = 100'000'000};
  while (true) {
    const bool interrupted = sigtimedwait(&set, nullptr, &turn) > 0;
    // The handler runs under the lock: it is short, and SetHandler promises that the one before has ended.
    MutexLock lock(&mutex_);
    if (stop_) return;
    if (interrupted && handler_) handler_();
  }
}

}  // namespace baton::cli
