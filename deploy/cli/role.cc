// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/role.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/operations_client.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/tls.h"

namespace baton::cli {
namespace {

constexpr int kPollMs = 50;
constexpr absl::Duration kCallTimeout = absl::Seconds(10);

// As the router lists it; nothing when it does not.
absl::StatusOr<std::optional<v1::Worker>> Find(RouterClient& client, const std::string& id) {
  BATON_ASSIGN_OR_RETURN(const v1::GetClusterResponse cluster, client.GetCluster(kCallTimeout));
  for (const v1::Worker& worker : cluster.workers()) {
    if (worker.id() == id) return worker;
  }
  return std::optional<v1::Worker>();
}

// Waits until the worker is ready in its new role.
absl::Status WaitUntilChanged(RouterClient& client, const std::string& id, const std::string& role) {
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  bool left = false;
  while (true) {
    BATON_ASSIGN_OR_RETURN(const std::optional<v1::Worker> worker, Find(client, id));
    const bool changed = worker && worker->role() == role;
    if (changed && worker->ready()) return absl::OkStatus();
    left = left || !worker;
    // Whoever supervises it has started it again as it was.
    if (left && worker && !changed) {
      return absl::AbortedError(absl::StrCat("worker ", id, " has come back as a ", worker->role(), " worker; its log says why it is not a ", role, " worker"));
    }
    if (Clock::Real()->Now() > deadline) {
      const std::string state = !worker ? "is loading, or has ended" : changed ? absl::StrCat("is not ready: ", worker->reason())
                                                                              : absl::StrCat("still runs ", worker->running(), " requests");
      return absl::DeadlineExceededError(absl::StrCat("worker ", id, " ", state, " after ", absl::FormatDuration(timeout), " (--timeout); it goes on"));
    }
    poll(nullptr, 0, kPollMs);
  }
}

int RunRole(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  absl::Status status = CheckAddress("--router", absl::GetFlag(FLAGS_router));
  const std::vector<std::string>& words = config.positional;
  if (words.size() != 2) {
    status = absl::InvalidArgumentError("which worker, and decode or prefill? `baton status` lists workers");
  } else if (words[1] != "prefill" && words[1] != "decode") {
    status = absl::InvalidArgumentError(absl::StrCat("role ", words[1], " is none of prefill, decode"));
  }
  const auto access = AccessFromFlags();
  if (status.ok()) status = access.status();
  if (!status.ok()) return Fail("role", status, json, kExitUsage);
  const std::string router = absl::GetFlag(FLAGS_router);
  RouterClient client(router, *access);
  // First what says clearly when there is no router, or none that answers us.
  status = client.GetCluster(kCallTimeout).status();
  if (status.ok()) status = SetWorkerRole(router, *access, words[0], words[1], kCallTimeout);
  if (status.ok()) status = WaitUntilChanged(client, words[0], words[1]);
  if (!status.ok()) return Fail("role", status, json);
  const std::string text = json ? DumpJson(nlohmann::ordered_json{{"worker", words[0]}, {"role", words[1]}})
                                : absl::StrCat(words[0], " is a ", words[1], " worker");
  return Print(text + "\n") ? kExitOk : kExitFailure;
}

}  // namespace

Command RoleCommand() {
  return {
      .name = "role",
      .summary = "turn a prefill worker into a decode worker, or back",
      .spec = {.summary = "Tells a worker, by id, to take nothing new, finish what runs within its --grace and come back in the other role: the "
                          "same process, with the same id, model, memory and addresses. Waits until it is ready. Its supervisor notices nothing; "
                          "should the worker end later it is started as it was set up. The last worker that a cluster needs in its role is "
                          "refused. Where the router asks for keys, one of role admin is needed.",
               .usage = "baton role WORKER decode|prefill [flags]",
               .examples = "  baton role p-2 decode\n  baton role p-2 prefill --router 10.0.0.1:9000 --timeout 60s\n",
               .groups = {{"Request", {"router", "api_key_file", "timeout"}}, {"TLS", ClientTlsFlags()}, {"Output", {"json"}}},
               .allow_positional = true},
      .run = RunRole,
  };
}

}  // namespace baton::cli
