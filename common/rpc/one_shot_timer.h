// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_ONE_SHOT_TIMER_H_
#define BATON_COMMON_RPC_ONE_SHOT_TIMER_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "grpcpp/alarm.h"

namespace baton {

// Calls back once, `delay` from now, unless it is destroyed before: on one of gRPC's threads, which must not be kept waiting. Once
// the destructor has returned the call is over or never comes, and what it held is free. The call may not destroy the timer.
class OneShotTimer {
 public:
  OneShotTimer(absl::Duration delay, std::function<void()> on_fired);
  ~OneShotTimer();
  OneShotTimer(const OneShotTimer&) = delete;
  OneShotTimer& operator=(const OneShotTimer&) = delete;

 private:
  struct Call;
  const std::shared_ptr<Call> call_;
  grpc::Alarm alarm_;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_ONE_SHOT_TIMER_H_
