// SPDX-License-Identifier: Apache-2.0
#include "common/base/shutdown_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace baton {
namespace {

sigset_t ShutdownSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t set = ShutdownSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);  // One that nobody has waited for ends nothing; while it is blocked it waits all the same.
}

ShutdownSignals::~ShutdownSignals() {
  const sigset_t set = ShutdownSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool ShutdownSignals::Wait(absl::Duration timeout) {
  const sigset_t set = ShutdownSet();
  const timespec limit = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&set, nullptr, &limit);
  return signal == SIGINT || signal == SIGTERM;
}

// A signal of its own: one more SIGTERM could be taken for a supervisor's, and theirs be lost in it.
void ShutdownSignals::Wake() { kill(getpid(), SIGUSR1); }

}  // namespace baton
