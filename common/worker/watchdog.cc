// SPDX-License-Identifier: Apache-2.0
#include "common/worker/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status Watchdog::Check(uint64_t turns, MonotonicTime now) {
  const bool paused = asked_ && now - last_check_ > limit_;
  if (!asked_ || turns != turns_) {
    turns_ = turns;
    since_ = now;
    pardoned_ = false;
  } else if (paused && !std::exchange(pardoned_, true)) {
    since_ = now;
  }
  asked_ = true;
  last_check_ = now;
  if (now - since_ <= limit_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the engine thread made no step for ", absl::FormatDuration(now - since_)));
}

}  // namespace baton
