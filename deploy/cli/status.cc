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
#include "deploy/cli/tls.h"

namespace baton::cli {
namespace {

// Of one process, by its status address.
int RunProcessStatus(const std::string& address, bool json) {
  const auto response = GetStatusPage(address, "/ready", std::min(absl::GetFlag(FLAGS_timeout), absl::Seconds(5)));
  if (!response.ok()) return Fail("status", response.status(), json);
  const bool ready = response->status == 200;
  const auto body = ParseJson(response->body);
  const bool says_why = body.ok() && body->is_object() && body->contains("reason") && (*body)["reason"].is_string();
  const std::string reason = says_why ? (*body)["reason"].get<std::string>() : "";
  if (json) {
    Print(response->body + "\n");
  } else {
    Print(ready ? "ready\n" : absl::StrCat("not ready: ", reason.empty() ? absl::StrCat("HTTP ", response->status) : reason, "\n"));
  }
  return ready ? kExitOk : kExitFailure;
}

int RunStatus(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  if (config.sources.at("status") != ConfigSource::kDefault) return RunProcessStatus(absl::GetFlag(FLAGS_status), json);
  if (const absl::Status status = CheckAddress("--router", absl::GetFlag(FLAGS_router)); !status.ok()) {
    return Fail("status", status, json, kExitUsage);
  }
  const auto access = AccessFromFlags();
  if (!access.ok()) return Fail("status", access.status(), json, kExitUsage);
  RouterClient client(absl::GetFlag(FLAGS_router), *access);
  const auto cluster = client.GetCluster(std::min(absl::GetFlag(FLAGS_timeout), absl::Seconds(10)));
  if (!cluster.ok()) return Fail("status", cluster.status(), json);
  const std::string text = json ? DumpJson(ClusterJson(*cluster)) + "\n" : ClusterText(*cluster, UseColor(STDOUT_FILENO), TerminalColumns(STDOUT_FILENO));
  return Print(text) ? kExitOk : kExitFailure;
}

}  // namespace

Command StatusCommand() {
  return {
      .name = "status",
      .summary = "list the workers of a cluster and how they do",
      .spec = {.summary = "Lists the workers that a router knows: addresses, readiness, KV blocks, load. With --status, whether "
                          "one process is ready: exit code 0 if it is (a health check).",
               .examples = "  baton status\n  baton status --router 10.0.0.1:9000 --json\n"
                           "  baton status --status 10.0.0.2:9101\n",
               .groups = {{"Request", {"router", "api_key_file", "status", "timeout"}},
                          {"TLS", ClientTlsFlags()}, {"Output", {"json"}}}},
      .run = RunStatus,
  };
}

}  // namespace baton::cli
