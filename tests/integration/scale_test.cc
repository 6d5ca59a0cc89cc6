// SPDX-License-Identifier: Apache-2.0
// `baton scale` on a cluster that `baton serve` has started.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster_load.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

absl::StatusOr<std::unique_ptr<LocalCluster>> SmallCluster(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--decode=1", "--threads=1", "--kv-memory=16MiB"});
  return LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel().Build()), flags);
}

std::vector<std::string> Ids(const LocalCluster& cluster) {
  std::vector<std::string> ids;
  const auto seen = cli::RouterClient(cluster.grpc()).GetCluster(absl::Seconds(5));
  if (!seen.ok()) return {seen.status().ToString()};
  for (const v1::Worker& worker : seen->workers()) ids.push_back(worker.id());
  return ids;
}

Finished Scale(const std::string& router, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"scale", "--router=" + router, "--timeout=60s"});
  return RunBaton(flags);
}

bool Works(const LocalCluster& cluster, const std::string& id) {
  const auto worker = cluster.Worker(id);
  if (!worker.ok()) return false;
  const char* metric = worker->role() == "prefill" ? "baton_prompt_tokens_computed_total" : "baton_tokens_generated_total";
  const auto done = cluster.Metric(worker->status(), metric);
  return done.ok() && *done > 0;
}

TEST(Scale, EachPoolFromOneToThreeAndBackUnderLoad) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, SmallCluster({"--prefill=1"}));
  ClusterLoad load(cluster.get(), 8);
  const struct {
    std::string flags;
    std::vector<std::string> ids, fresh;
  } steps[] = {{"--prefill=3", {"p-1", "p-2", "p-3", "d-1"}, {"p-2", "p-3"}},
               {"--prefill=1", {"p-1", "d-1"}, {}},
               {"--decode=3", {"p-1", "d-1", "d-2", "d-3"}, {"d-2", "d-3"}},
               {"--decode=1", {"p-1", "d-1"}, {}}};
  for (const auto& step : steps) {
    SCOPED_TRACE(step.flags);
    const Finished finished = Scale(cluster->grpc(), {step.flags});
    EXPECT_EQ(finished.exit.code, 0) << finished.output;
    EXPECT_THAT(Ids(*cluster), UnorderedElementsAreArray(step.ids));
    for (const std::string& id : step.fresh) EXPECT_TRUE(Eventually([&] { return Works(*cluster, id); })) << id << " gets nothing to do";
    EXPECT_TRUE(load.WaitForMore(8));
  }
  load.Stop();
  EXPECT_THAT(load.wrong(), IsEmpty()) << cluster->log();
  EXPECT_TRUE(Eventually([&] { return cluster->Idle(); }));
  for (const char* retired : {"prefill p-2", "prefill p-3", "decode d-2", "decode d-3"}) {
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(cluster->log(), absl::StrCat(retired, " ended with exit code 0, as it was told to")); }))
        << retired;
  }
}

TEST(Scale, BothPoolsAtOnceAsJson) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, SmallCluster({"--prefill=1"}));
  Finished finished = Scale(cluster->grpc(), {"--prefill=2", "--decode=2", "--json"});
  EXPECT_THAT(finished.output, HasSubstr(R"({"workers":["p-1","p-2","d-1","d-2"],"ended":[]})"));
  finished = Scale(cluster->grpc(), {"--prefill=1", "--decode=1"});
  EXPECT_THAT(finished.output, HasSubstr("p-1, d-1 serve; p-2, d-2 ended"));
  EXPECT_THAT(Ids(*cluster), UnorderedElementsAreArray({"p-1", "d-1"}));
}

TEST(Scale, WhatCannotBeIsRefusedAndChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, SmallCluster({"--prefill=1"}));
  ASSERT_OK_AND_ASSIGN(const auto local, SmallCluster({"--local-prefill"}));
  const struct {
    std::string router;
    std::vector<std::string> flags;
    const char* message;
    int code;
  } cases[] = {{cluster->grpc(), {}, "Give --prefill, --decode or both", 2},
               {cluster->grpc(), {"--decode=0"}, "--decode 0 is outside 1 to 64", 2},
               {cluster->grpc(), {"--decode=-1"}, "--decode -1 is outside 1 to 64", 2},
               {cluster->grpc(), {"--decode=two"}, "two", 2},
               {cluster->grpc(), {"--prefill=0"}, "--prefill 0 needs --local-prefill", 2},
               {cluster->grpc(), {"--prefill=65"}, "--prefill 65 is outside 0 to 64", 2},
               {local->grpc(), {"--prefill=1"}, "--prefill 1: this cluster was started with --local-prefill", 2},
               {"127.0.0.1:1", {"--decode=2"}, "no `baton serve` of this machine and user runs a router at port 1", 1},
               {"192.0.2.1:9000", {"--decode=2"}, "--router 192.0.2.1:9000 is not of this machine", 2}};
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.router, " ", absl::StrJoin(c.flags, " ")));
    const Finished finished = Scale(c.router, c.flags);
    EXPECT_EQ(finished.exit.code, c.code) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr(c.message));
  }
  EXPECT_THAT(Ids(*cluster), UnorderedElementsAreArray({"p-1", "d-1"}));
  EXPECT_THAT(Ids(*local), UnorderedElementsAreArray({"d-1"}));
  EXPECT_EQ(Scale(local->grpc(), {"--decode=2"}).exit.code, 0);
  EXPECT_THAT(Ids(*local), UnorderedElementsAreArray({"d-1", "d-2"}));
}

}  // namespace
}  // namespace baton::testing
