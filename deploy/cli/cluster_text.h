// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_CLUSTER_TEXT_H_
#define BATON_DEPLOY_CLI_CLUSTER_TEXT_H_

#include <string>

#include "baton/v1/generation.pb.h"
#include "nlohmann/json.hpp"

namespace baton::cli {

// The object of `baton status --json`: workers in the router's order, and the router.
nlohmann::ordered_json ClusterJson(const v1::GetClusterResponse& cluster);

// A line about the router and a table of workers, for a terminal of so many `columns` (0: no bound).
std::string ClusterText(const v1::GetClusterResponse& cluster, bool color, int columns = 0);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_CLUSTER_TEXT_H_
