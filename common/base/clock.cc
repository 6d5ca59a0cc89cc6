// SPDX-License-Identifier: Apache-2.0
#include "common/base/clock.h"

#include <chrono>

namespace baton {
namespace {

class RealClock : public Clock {
 public:
  MonotonicTime Now() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

const Clock* Clock::Real() {
  static const RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace baton
