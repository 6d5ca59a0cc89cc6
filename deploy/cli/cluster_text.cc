// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/cluster_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/cli/performance_text.h"
#include "deploy/cli/terminal.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

// "shm to d-1, tcp to d-2" for who sends, "shm,tcp,grpc" for who receives.
std::string Transports(const v1::Worker& worker) {
  if (worker.links().empty()) return absl::StrJoin(worker.transports(), ",");
  return absl::StrJoin(worker.links(), ", ", [](std::string* out, const v1::KvLink& link) {
    absl::StrAppend(out, link.transport().empty() ? "nothing" : link.transport(), " to ", link.worker(),
                    link.reason().empty() ? "" : "!");
  });
}

std::vector<Cell> Row(const v1::Worker& worker) {
  const v1::Blocks& blocks = worker.blocks();
  return {{worker.id(), Tone::kBold},
          {worker.role()},
          worker.ready() ? Cell{"ready", Tone::kGood} : Cell{"not ready", Tone::kBad},
          {worker.address()},
          {worker.status()},
          {absl::StrCat(blocks.used(), "+", blocks.cached(), "/", blocks.total())},
          {absl::StrCat(worker.running(), "+", worker.waiting())},
          {Transports(worker)},
          {worker.model()},
          {worker.ready() ? "" : worker.reason(), Tone::kBad}};
}

}  // namespace

Json ClusterJson(const v1::GetClusterResponse& cluster) {
  Json workers = Json::array();
  for (const v1::Worker& worker : cluster.workers()) {
    const v1::Blocks& blocks = worker.blocks();
    Json json = {{"id", worker.id()},
                 {"role", worker.role()},
                 {"address", worker.address()},
                 {"status", worker.status()},
                 {"ready", worker.ready()},
                 {"model", worker.model()},
                 {"fingerprint", worker.fingerprint()},
                 {"numerics", worker.numerics()},
                 {"kv_layout", worker.kv_layout()},
                 {"context_length", worker.context_length()},
                 {"blocks",
                  {{"total", blocks.total()},
                   {"free", blocks.free()},
                   {"used", blocks.used()},
                   {"cached", blocks.cached()},
                   {"quarantined", blocks.quarantined()}}},
                 {"running", worker.running()},
                 {"waiting", worker.waiting()},
                 {"transports", std::vector<std::string>(worker.transports().begin(), worker.transports().end())}};
    Json links = Json::array();
    for (const v1::KvLink& link : worker.links()) {
      links.push_back({{"worker", link.worker()}, {"transport", link.transport()}});
      if (!link.reason().empty()) links.back()["reason"] = link.reason();
    }
    json["links"] = std::move(links);
    AddPerformanceJson(worker, &json);
    if (!worker.reason().empty()) json["reason"] = worker.reason();
    workers.push_back(std::move(json));
  }
  const v1::Router& router = cluster.router();
  Json json = {{"workers", std::move(workers)},
               {"router",
                {{"id", router.id()}, {"queued", router.queued()}, {"running", router.running()}, {"ready", router.ready()}}}};
  if (!router.reason().empty()) json["router"]["reason"] = router.reason();
  return json;
}

std::string ClusterText(const v1::GetClusterResponse& cluster, bool color, int columns) {
  const v1::Router& router = cluster.router();
  std::string text = absl::StrCat(
      "router ", router.id(), ": ",
      router.ready() ? Styled("ready", Tone::kGood, color) : Styled("not ready, " + router.reason(), Tone::kBad, color), ", ",
      router.running(), " running, ", router.queued(), " queued\n");
  if (cluster.workers().empty()) return text + "no workers\n";
  std::vector<std::vector<Cell>> rows;
  std::vector<Cell> heading;
  for (const char* title :
       {"WORKER", "ROLE", "STATE", "ADDRESS", "STATUS", "BLOCKS used+cached/total", "REQUESTS running+waiting", "TRANSPORTS",
        "MODEL", ""}) {
    heading.push_back({title, Tone::kDim});
  }
  rows.push_back(std::move(heading));
  for (const v1::Worker& worker : cluster.workers()) rows.push_back(Row(worker));
  const std::string performance = PerformanceText(cluster, color, columns);
  absl::StrAppend(&text, Table(rows, color, columns));
  for (const v1::Worker& worker : cluster.workers()) {
    for (const v1::KvLink& link : worker.links()) {
      if (link.reason().empty()) continue;
      absl::StrAppend(&text, worker.id(), " sends to ", link.worker(), " by ", link.transport(), " for now: ", link.reason(), "\n");
    }
  }
  return absl::StrCat(text, performance.empty() ? "" : "\n", performance);
}

}  // namespace baton::cli
