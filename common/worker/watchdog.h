// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WATCHDOG_H_
#define BATON_COMMON_WORKER_WATCHDOG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

// Finds an engine thread that makes no turns, by a counter that it increases with each. Who asks may have been stopped together
// with it (SIGSTOP, a suspended machine): a gap between two questions that is longer than the limit is held against it only the
// second time. One thread.
class Watchdog {
 public:
  explicit Watchdog(absl::Duration limit) : limit_(limit) {}

  // INTERNAL  the counter has stood for more than the limit; says for how long.
  absl::Status Check(uint64_t turns, MonotonicTime now);

 private:
  const absl::Duration limit_;
  bool asked_ = false;
  uint64_t turns_ = 0;
  MonotonicTime since_ = absl::ZeroDuration();  // When `turns_` was first seen, or the pause of who asks ended.
  MonotonicTime last_check_ = absl::ZeroDuration();
  bool pardoned_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WATCHDOG_H_
