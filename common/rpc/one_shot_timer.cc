// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/one_shot_timer.h"

#include <utility>

namespace baton {

OneShotTimer::OneShotTimer(absl::Duration delay, std::function<void()> on_fired) {
  alarm_.Set(absl::ToChronoTime(absl::Now() + delay), [on_fired = std::move(on_fired)](bool fired) {
    if (fired) on_fired();
  });
}

}  // namespace baton
