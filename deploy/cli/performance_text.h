// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_PERFORMANCE_TEXT_H_
#define BATON_DEPLOY_CLI_PERFORMANCE_TEXT_H_

#include <string>

#include "baton/v1/generation.pb.h"
#include "common/base/json.h"

namespace baton::cli {

// Adds `peaks`, `prefill` and `decode` to a worker's JSON object, as far as the worker told them.
void AddPerformanceJson(const v1::Worker& worker, nlohmann::ordered_json* json);

// A table: what each worker's phases do, beside what its machine can do. Empty when no worker has told.
std::string PerformanceText(const v1::GetClusterResponse& cluster, bool color, int columns);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_PERFORMANCE_TEXT_H_
