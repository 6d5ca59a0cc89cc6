// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_ROLE_H_
#define BATON_DEPLOY_CLI_ROLE_H_

#include "deploy/cli/command.h"

namespace baton::cli {

Command RoleCommand();

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_ROLE_H_
