// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_CLOCK_H_
#define BATON_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace baton {

// Monotonic time of this process, in durations since an arbitrary origin. Never compared across processes.
using MonotonicTime = absl::Duration;

// Where time comes from: the machine's monotonic clock, or a test's. Pure classes take `now` as an argument; shells hold
// a Clock.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never decreases. Any thread.
  virtual MonotonicTime Now() const = 0;
  // The process-wide clock over CLOCK_MONOTONIC.
  static const Clock* Real();
};

// A clock that moves only when told to. Not thread-safe: tests and simulations own it on one thread.
class ManualClock : public Clock {
 public:
  MonotonicTime Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  MonotonicTime now_ = absl::Seconds(1000);
};

inline double ToMs(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

}  // namespace baton

#endif  // BATON_COMMON_BASE_CLOCK_H_
