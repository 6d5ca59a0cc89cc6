// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_SHUTDOWN_SIGNALS_H_
#define BATON_COMMON_BASE_SHUTDOWN_SIGNALS_H_

#include "absl/time/time.h"

namespace baton {

// Turns SIGINT and SIGTERM into something that main can wait for; SIGPIPE is ignored, SIGUSR1 is Wake's. One per process, made at
// the start of main before other threads, which inherit the blocked mask.
class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // Waits at most `timeout` for the next of the two signals. True when one came (each is reported once); false when the time is up
  // or somebody called Wake.
  bool Wait(absl::Duration timeout);
  // Ends a Wait that runs, or the next one. Any thread.
  void Wake();
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_SHUTDOWN_SIGNALS_H_
