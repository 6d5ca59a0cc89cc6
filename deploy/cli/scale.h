// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_SCALE_H_
#define BATON_DEPLOY_CLI_SCALE_H_

#include "deploy/cli/command.h"

namespace baton::cli {

Command ScaleCommand();

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_SCALE_H_
