// SPDX-License-Identifier: Apache-2.0
// `baton role`: a worker of a cluster that is under load turns into one of the other kind, and back.
#include <string>
#include <vector>

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
using ::testing::Not;

absl::StatusOr<std::unique_ptr<LocalCluster>> SmallCluster(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--threads=1", "--kv-memory=16MiB"});
  return LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel().Build()), flags);
}

Finished Role(const LocalCluster& cluster, std::vector<std::string> words) {
  words.insert(words.begin(), {"role", "--router=" + cluster.grpc(), "--timeout=60s"});
  return RunBaton(words);
}

// Whether it does what its role is for.
bool Works(const LocalCluster& cluster, const std::string& id, const std::string& role) {
  const auto worker = cluster.Worker(id);
  if (!worker.ok() || worker->role() != role) return false;
  const char* metric = role == "prefill" ? "baton_prompt_tokens_computed_total" : "baton_tokens_generated_total";
  const auto done = cluster.Metric(worker->status(), metric);
  return done.ok() && *done > 0;
}

TEST(Role, ThereAndBackUnderLoadLosesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, SmallCluster({"--prefill=2", "--decode=2"}));
  const pid_t p2 = cluster->PidOf("p-2"), d2 = cluster->PidOf("d-2");
  ASSERT_GT(p2, 0);
  ClusterLoad load(cluster.get(), 8);
  const struct {
    std::string id, role;
  } steps[] = {{"p-2", "decode"}, {"p-2", "prefill"}, {"d-2", "prefill"}, {"d-2", "decode"}};
  for (const auto& step : steps) {
    SCOPED_TRACE(absl::StrCat(step.id, " to ", step.role));
    const Finished finished = Role(*cluster, {step.id, step.role});
    EXPECT_EQ(finished.exit.code, 0) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr(absl::StrCat(step.id, " is a ", step.role, " worker")));
    EXPECT_TRUE(Eventually([&] { return Works(*cluster, step.id, step.role); })) << "gets nothing to do\n" << cluster->log();
    EXPECT_TRUE(load.WaitForMore(8));
  }
  load.Stop();
  EXPECT_THAT(load.wrong(), IsEmpty()) << cluster->log();
  EXPECT_TRUE(Eventually([&] { return cluster->Idle(); }));
  // The same processes, which nobody has started again.
  EXPECT_EQ(cluster->PidOf("p-2"), p2);
  EXPECT_EQ(cluster->PidOf("d-2"), d2);
  EXPECT_THAT(cluster->log(), Not(HasSubstr("starting it again")));
}

TEST(Role, WhatCannotBeIsRefusedAndChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, SmallCluster({"--prefill=1", "--decode=1"}));
  const struct {
    std::vector<std::string> words;
    const char* message;
    int code;
  } cases[] = {{{}, "which worker, and decode or prefill?", 2},
               {{"p-1"}, "which worker, and decode or prefill?", 2},
               {{"p-1", "router"}, "role router is none of prefill, decode", 2},
               {{"p-7", "decode"}, "no worker p-7 is registered here; ", 1},
               {{"p-1", "decode"}, "worker p-1 is needed as it is; without it: no prefill worker", 1},
               {{"d-1", "prefill"}, "worker d-1 is needed as it is; without it: no decode worker", 1},
               {{"d-1", "decode"}, "d-1 is a decode worker", 0}};  // It is.
  for (const auto& c : cases) {
    SCOPED_TRACE(absl::StrJoin(c.words, " "));
    const Finished finished = Role(*cluster, c.words);
    EXPECT_EQ(finished.exit.code, c.code) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr(c.message));
  }
  ASSERT_OK_AND_ASSIGN(const cli::Answer answer, cluster->Generate(GreedyRequest({5, 6, 7}, 4)));
  EXPECT_EQ(answer.choices[0].token_ids.size(), 4u);
}

// Where decode workers do everything alone, any of them may go, the last prefill worker too.
TEST(Role, AWorkerThatChangedDrainsWithTheOthers) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, SmallCluster({"--prefill=1", "--decode=2", "--disaggregate=adaptive"}));
  EXPECT_EQ(Role(*cluster, {"p-1", "decode"}).exit.code, 0);
  ASSERT_OK_AND_ASSIGN(const v1::Worker worker, cluster->Worker("p-1"));
  EXPECT_EQ(worker.role(), "decode");
  // `baton serve` drains it as the others, whatever it is by now: the destructor looks at the exit code.
}

}  // namespace
}  // namespace baton::testing
