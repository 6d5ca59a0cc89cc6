// SPDX-License-Identifier: Apache-2.0
#include "common/base/shutdown_signals.h"

#include <signal.h>
#include <time.h>

namespace baton {
namespace {

sigset_t ShutdownSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t set = ShutdownSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

ShutdownSignals::~ShutdownSignals() {
  const sigset_t set = ShutdownSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool ShutdownSignals::Wait(absl::Duration timeout) {
  const sigset_t set = ShutdownSet();
  const timespec limit = absl::ToTimespec(timeout);
  return sigtimedwait(&set, nullptr, &limit) > 0;
}

}  // namespace baton
