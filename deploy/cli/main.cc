// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/command.h"

int main(int argc, char** argv) {
  return baton::cli::RunCommandLine(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
