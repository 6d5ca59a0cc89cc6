// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_OPERATIONS_CLIENT_H_
#define BATON_DEPLOY_CLI_OPERATIONS_CLIENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "deploy/cli/router_client.h"

namespace baton::cli {

// baton.v1.Operations.SetWorkerRole of the router at `address`. Blocks.
//   The router's codes. FAILED_PRECONDITION also where the router is of a release without it.
absl::Status SetWorkerRole(const std::string& address, const RouterAccess& access, const std::string& worker, const std::string& role,
                           absl::Duration timeout);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_OPERATIONS_CLIENT_H_
