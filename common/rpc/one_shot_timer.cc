// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/one_shot_timer.h"

#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/monotonic_deadline.h"

namespace baton {

struct OneShotTimer::Call {
  Mutex mutex;
  std::function<void()> on_fired ABSL_GUARDED_BY(mutex);
};

OneShotTimer::OneShotTimer(absl::Duration delay, std::function<void()> on_fired) : call_(std::make_shared<Call>()) {
  {
    MutexLock lock(&call_->mutex);
    call_->on_fired = std::move(on_fired);
  }
  alarm_.Set(MonotonicDeadline(delay), [call = call_](bool fired) {
    MutexLock lock(&call->mutex);
    if (fired && call->on_fired) call->on_fired();
  });
}

OneShotTimer::~OneShotTimer() {
  std::function<void()> dropped;  // After the lock: it may hold the last of anything.
  MutexLock lock(&call_->mutex);
  dropped = std::exchange(call_->on_fired, nullptr);
}

}  // namespace baton
