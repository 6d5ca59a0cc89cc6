// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "deploy/cli/cluster_text.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/terminal.h"

namespace baton::cli {
namespace {

int RunStatus(const ConfigResult&) {
  const bool json = absl::GetFlag(FLAGS_json);
  if (const absl::Status status = CheckAddress("--router", absl::GetFlag(FLAGS_router)); !status.ok()) {
    return Fail("status", status, json, kExitUsage);
  }
  RouterClient client(absl::GetFlag(FLAGS_router));
  const auto cluster = client.GetCluster(std::min(absl::GetFlag(FLAGS_timeout), absl::Seconds(10)));
  if (!cluster.ok()) return Fail("status", cluster.status(), json);
  const std::string text = json ? DumpJson(ClusterJson(*cluster)) + "\n" : ClusterText(*cluster, UseColor(STDOUT_FILENO));
  return Print(text) ? kExitOk : kExitFailure;
}

}  // namespace

Command StatusCommand() {
  return {
      .name = "status",
      .summary = "list the workers of a cluster and how they do",
      .spec = {.summary = "Lists the workers that a router knows: addresses, readiness, KV blocks, load.",
               .examples = "  baton status\n  baton status --router 10.0.0.1:9000 --json\n",
               .groups = {{"Request", {"router", "timeout"}}, {"Output", {"json"}}}},
      .run = RunStatus,
  };
}

}  // namespace baton::cli
