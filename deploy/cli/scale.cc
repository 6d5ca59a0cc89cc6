// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/scale.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "deploy/cli/cluster_plan.h"
#include "deploy/cli/control_socket.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/scale_message.h"
#include "deploy/cli/tls.h"

namespace baton::cli {
namespace {

constexpr int kPollMs = 50;

// What is not yet as asked for; empty when nothing.
std::string Missing(const v1::GetClusterResponse& cluster, const ScaleReply& reply) {
  std::set<std::string> ready, known;
  for (const v1::Worker& worker : cluster.workers()) {
    known.insert(worker.id());
    if (worker.ready()) ready.insert(worker.id());
  }
  for (const std::string& id : reply.workers) {
    if (!ready.count(id)) return absl::StrCat(id, " is not ready yet");
  }
  for (const std::string& id : reply.ending) {
    if (known.count(id)) return absl::StrCat(id, " still runs");
  }
  return "";
}

absl::Status WaitUntilDone(RouterClient& client, const ScaleReply& reply) {
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  while (true) {
    BATON_ASSIGN_OR_RETURN(const v1::GetClusterResponse cluster, client.GetCluster(absl::Seconds(10)));
    const std::string missing = Missing(cluster, reply);
    if (missing.empty()) return absl::OkStatus();
    if (Clock::Real()->Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(missing, " after ", absl::FormatDuration(timeout), " (--timeout); the cluster goes on with it"));
    }
    poll(nullptr, 0, kPollMs);
  }
}

// Nothing where the flag was not given.
std::optional<int> Wanted(const ConfigResult& config, const char* name, int value) {
  return config.sources.at(name) == ConfigSource::kDefault ? std::nullopt : std::optional(value);
}

// A cluster elsewhere is not this command's to scale: the `baton serve` of this machine may have the same port.
absl::Status CheckRouterIsHere(const std::string& router) {
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(router));
  if (WithFreePort("--router", FormatHostPort(address.host, 0)).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--router ", router, " is not of this machine, where `baton serve` has to run"));
}

int RunScale(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  const ScaleRequest request = {.prefill = Wanted(config, "prefill", absl::GetFlag(FLAGS_prefill)),
                                .decode = Wanted(config, "decode", absl::GetFlag(FLAGS_decode))};
  absl::Status status;
  if (!request.prefill && !request.decode) {
    status = absl::InvalidArgumentError("how many? Give --prefill, --decode or both");
  }
  if (status.ok()) status = CheckRouterIsHere(absl::GetFlag(FLAGS_router));
  const auto access = AccessFromFlags();
  if (status.ok()) status = access.status();
  if (!status.ok()) return Fail("scale", status, json, kExitUsage);
  const uint16_t port = ParseHostPort(absl::GetFlag(FLAGS_router))->port;
  const auto answered = AskServe(port, WriteScaleRequest(request), std::min(absl::GetFlag(FLAGS_timeout), absl::Seconds(10)));
  if (!answered.ok()) return Fail("scale", answered.status(), json);
  const auto reply = ReadScaleReply(*answered);
  if (!reply.ok()) return Fail("scale", reply.status(), json, absl::IsInvalidArgument(reply.status()) ? kExitUsage : kExitFailure);
  RouterClient client(absl::GetFlag(FLAGS_router), *access);
  status = WaitUntilDone(client, *reply);
  if (!status.ok()) return Fail("scale", status, json);
  const std::string text = json ? DumpJson(nlohmann::ordered_json{{"workers", reply->workers}, {"ended", reply->ending}})
                                : absl::StrCat(absl::StrJoin(reply->workers, ", "), " serve",
                                               reply->ending.empty() ? "" : absl::StrCat("; ", absl::StrJoin(reply->ending, ", "), " ended"));
  return Print(text + "\n") ? kExitOk : kExitFailure;
}

}  // namespace

Command ScaleCommand() {
  return {
      .name = "scale",
      .summary = "change how many workers a local cluster has",
      .spec = {.summary = "Tells the `baton serve` of this machine and user to have so many workers of a kind; waits until new ones are ready and "
                          "those of the highest numbers, when there are too many, have finished what they run and ended. A cluster of "
                          "services or pods is scaled by its supervisor: systemctl, kubectl scale.",
               .examples = "  baton scale --prefill 3 --decode 2\n  baton scale --decode 1 --router 127.0.0.1:9010 --timeout 2m\n",
               .groups = {{"Cluster", {"prefill", "decode"}},
                          {"Request", {"router", "api_key_file", "timeout"}},
                          {"TLS", ClientTlsFlags()},
                          {"Output", {"json"}}},
               .not_from_environment = {"prefill", "decode"}},
      .run = RunScale,
  };
}

}  // namespace baton::cli
