// SPDX-License-Identifier: Apache-2.0
#include "common/worker/reconnect_policy.h"

#include <algorithm>

namespace baton {

ReconnectPolicy::Decision ReconnectPolicy::OnSessionEnd(bool accepted, bool unreachable, MonotonicTime begun, MonotonicTime now,
                                                        double random) {
  if (accepted) {
    backoff_ = kLostBackoff;
    failing_since_ = absl::InfiniteDuration();
    warned_ = false;
    return {.pause = kSpread * random};
  }
  failing_since_ = std::min(failing_since_, begun);
  Decision decision{.pause = backoff_ * (0.5 + random)};
  decision.warn = !warned_ && (!unreachable || now - failing_since_ >= kQuiet);
  warned_ = warned_ || decision.warn;
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  return decision;
}

}  // namespace baton
