// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_ONE_SHOT_TIMER_H_
#define BATON_COMMON_RPC_ONE_SHOT_TIMER_H_

#include <functional>

#include "absl/time/time.h"
#include "grpcpp/alarm.h"

namespace baton {

// Calls back once, `delay` from now, unless it is destroyed before: on one of gRPC's threads, which must not be kept waiting. A call
// that has begun goes on beside the destructor, so it holds what it needs.
class OneShotTimer {
 public:
  OneShotTimer(absl::Duration delay, std::function<void()> on_fired);
  OneShotTimer(const OneShotTimer&) = delete;
  OneShotTimer& operator=(const OneShotTimer&) = delete;

 private:
  grpc::Alarm alarm_;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_ONE_SHOT_TIMER_H_
