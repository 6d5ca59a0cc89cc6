// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WORKER_FLAGS_H_
#define BATON_COMMON_WORKER_WORKER_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/config.h"
#include "common/worker/worker_options.h"

namespace baton {

// The flags that both workers have, in groups for --help. Defined in worker_flags.cc.
std::vector<ConfigGroup> WorkerFlagGroups();

// The flags' values, after ParseConfig. INVALID_ARGUMENT names flag, value and bound.
absl::StatusOr<WorkerOptions> WorkerOptionsFromFlags(internal::WorkerRole role);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WORKER_FLAGS_H_
