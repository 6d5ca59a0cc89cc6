// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_MONOTONIC_DEADLINE_H_
#define BATON_COMMON_RPC_MONOTONIC_DEADLINE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace baton {

// `timeout` from now, as gRPC takes deadlines of calls, alarms and servers: the wall clock, which may be set meanwhile, has no part in it.
inline gpr_timespec MonotonicDeadline(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const int64_t nanos = std::max<int64_t>(0, absl::ToInt64Nanoseconds(timeout));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanos, GPR_TIMESPAN));
}

// What is left until a call's raw_deadline(); negative when it is over.
inline absl::Duration TimeLeft(gpr_timespec deadline) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return absl::InfiniteDuration();
  const gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC), gpr_now(GPR_CLOCK_MONOTONIC));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

}  // namespace baton

#endif  // BATON_COMMON_RPC_MONOTONIC_DEADLINE_H_
