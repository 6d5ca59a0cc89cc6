// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/tls.h"

namespace baton::cli {
namespace {

constexpr int kPollMs = 50;

// Waits until the router lists the worker no more, or again as one that does not drain: whoever supervises it has started it
// anew.
absl::Status WaitUntilGone(RouterClient& client, const std::string& worker, MonotonicTime deadline) {
  bool seen_draining = false;
  while (true) {
    const auto cluster = client.GetCluster(absl::Seconds(10));
    if (!cluster.ok()) return cluster.status();
    const auto& workers = cluster->workers();
    const auto found = std::find_if(workers.begin(), workers.end(), [&](const v1::Worker& w) { return w.id() == worker; });
    const bool draining = found != workers.end() && found->reason() == "draining";
    if (found == workers.end() || (seen_draining && !draining)) return absl::OkStatus();
    seen_draining = seen_draining || draining;
    if (Clock::Real()->Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("worker ", worker, " still runs ", found->running(), " requests after ",
                                                      absl::FormatDuration(absl::GetFlag(FLAGS_timeout)), " (--timeout); it goes on draining"));
    }
    poll(nullptr, 0, kPollMs);
  }
}

int RunDrain(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  absl::Status status = CheckAddress("--router", absl::GetFlag(FLAGS_router));
  if (config.positional.empty()) status = absl::InvalidArgumentError("which worker? `baton status` lists them");
  const auto access = AccessFromFlags();
  if (status.ok()) status = access.status();
  if (!status.ok()) return Fail("drain", status, json, kExitUsage);
  RouterClient client(absl::GetFlag(FLAGS_router), *access);
  const MonotonicTime deadline = Clock::Real()->Now() + absl::GetFlag(FLAGS_timeout);
  for (const std::string& worker : config.positional) {
    status = client.DrainWorker(worker, absl::Seconds(10));
    if (!status.ok()) return Fail("drain", status, json);
  }
  for (const std::string& worker : config.positional) {
    status = WaitUntilGone(client, worker, deadline);
    if (!status.ok()) return Fail("drain", status, json);
  }
  const std::string text = json ? DumpJson(nlohmann::ordered_json{{"drained", config.positional}})
                                : absl::StrCat(absl::StrJoin(config.positional, ", "), " drained");
  return Print(text + "\n") ? kExitOk : kExitFailure;
}

}  // namespace

Command DrainCommand() {
  return {
      .name = "drain",
      .summary = "let workers finish what runs and end",
      .spec = {.summary = "Tells workers, by id, to take nothing new, finish what runs within their --grace and end; waits until they have. "
                          "Whoever supervises a worker (baton serve, systemd, Kubernetes) starts it again: then this is a restart that "
                          "loses nothing. Where the router asks for keys, one of role admin is needed.",
               .usage = "baton drain WORKER... [flags]",
               .examples = "  baton drain d-1\n  baton drain d-1 d-2 --router 10.0.0.1:9000 --timeout 60s\n",
               .groups = {{"Request", {"router", "api_key_file", "timeout"}},
                          {"TLS", ClientTlsFlags()}, {"Output", {"json"}}},
               .allow_positional = true},
      .run = RunDrain,
  };
}

}  // namespace baton::cli
