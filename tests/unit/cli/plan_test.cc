// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/cluster_plan.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "common/base/host_port.h"
#include "deploy/cli/command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ClusterPlan Plan() {
  return {.program_folder = "/b", .model = "m.gguf", .grpc = "127.0.0.1:9000", .http = "127.0.0.1:8000", .status = "127.0.0.1:9100"};
}

std::vector<std::string> Names(const std::vector<ChildSpec>& specs) {
  std::vector<std::string> names;
  for (const ChildSpec& spec : specs) names.push_back(spec.name);
  return names;
}

TEST(ClusterPlan, RouterFirstThenWorkersThatRegisterWithIt) {
  ClusterPlan plan = Plan();
  plan.num_prefill = 2;
  plan.options = {{"threads", "3"}, {"max_request_bytes", "1MiB"}, {"grace", "5s"}};
  plan.decode_flags = {"--max-waiting=1"};
  ASSERT_OK_AND_ASSIGN(const auto specs, PlanCluster(plan));
  EXPECT_THAT(Names(specs), ElementsAre("router", "prefill p-1", "prefill p-2", "decode d-1"));
  EXPECT_EQ(specs[0].stage, 0);
  EXPECT_EQ(specs[1].stage, 1);
  EXPECT_THAT(specs[0].argv, ElementsAre("/b/baton_router", "--model=m.gguf", "--grpc=127.0.0.1:9000", "--http=127.0.0.1:8000",
                                         "--status=127.0.0.1:9100", "--disaggregate=adaptive", "--max-request-bytes=1MiB",
                                         "--grace=5s"));
  EXPECT_THAT(specs[3].argv,
              ElementsAre("/b/baton_decode_worker", "--model=m.gguf", "--id=d-1", "--listen=127.0.0.1:0", "--status=127.0.0.1:0",
                          "--router=127.0.0.1:9000", "--kv-memory-share=0.1667", "--threads=3", "--grace=5s", "--max-waiting=1"));
  EXPECT_THAT(specs[1].argv, Not(Contains("--max-waiting=1")));
}

TEST(ClusterPlan, LocalPrefillHasNoPrefillWorkers) {
  ClusterPlan plan = Plan();
  plan.local_prefill = true;
  ASSERT_OK_AND_ASSIGN(const auto specs, PlanCluster(plan));
  EXPECT_THAT(Names(specs), ElementsAre("router", "decode d-1"));
  EXPECT_THAT(specs[0].argv, Contains("--disaggregate=never"));
}

TEST(ClusterPlan, RefusesWhatCannotServe) {
  ClusterPlan plan = Plan();
  plan.num_prefill = 0;
  EXPECT_THAT(PlanCluster(plan), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--local-prefill")));
  plan.disaggregate = "never";
  EXPECT_THAT(PlanCluster(plan), IsOk());
  plan.num_decode = 0;
  EXPECT_THAT(PlanCluster(plan), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--decode 0 is outside 1 to 64")));
  plan = Plan();
  plan.num_prefill = -1;
  EXPECT_THAT(PlanCluster(plan), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--prefill -1")));
  plan = Plan();
  plan.local_prefill = true;
  plan.disaggregate = "always";
  EXPECT_THAT(PlanCluster(plan), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--disaggregate always")));
}

TEST(ClusterPlan, WorkersReachARouterThatListensEverywhere) {
  EXPECT_EQ(ReachableAddress("0.0.0.0:9000"), "127.0.0.1:9000");
  EXPECT_EQ(ReachableAddress("[::]:9000"), "[::1]:9000");
  EXPECT_EQ(ReachableAddress("10.0.0.1:9000"), "10.0.0.1:9000");
}

TEST(WithFreePort, FillsInZeroAlone) {
  ASSERT_OK_AND_ASSIGN(const std::string filled, WithFreePort("--grpc", "127.0.0.1:0"));
  ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(filled));
  EXPECT_EQ(parsed.host, "127.0.0.1");
  EXPECT_GT(parsed.port, 0);
  EXPECT_THAT(WithFreePort("--grpc", "nonsense"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--grpc")));
}

// A worker that listens on any port, before the router listens on its own, must not take that.
TEST(WithFreePort, IsNoneThatTheSystemGivesToOthers) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  ASSERT_TRUE(range >> first);
  if (first < 11000) GTEST_SKIP() << "the system gives all ports from " << first;
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    ASSERT_OK_AND_ASSIGN(const std::string filled, WithFreePort("--grpc", address));
    ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(filled));
    EXPECT_LT(parsed.port, first);
    EXPECT_GT(parsed.port, 1024);
  }
}

// A cluster that runs there would answer for the one that is being started: "ready" would be a lie.
TEST(WithFreePort, RefusesAPortThatIsInUse) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in bound = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof bound;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&bound), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size), 0);
  const std::string address = FormatHostPort("127.0.0.1", ntohs(bound.sin_port));

  EXPECT_THAT(WithFreePort("--http", address),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("--http " + address), HasSubstr("in use"))));
  close(listener);
  ASSERT_OK_AND_ASSIGN(const std::string kept, WithFreePort("--http", address));
  EXPECT_EQ(kept, address);
}

TEST(ParseIntList, ReadsListsAndNamesWhatIsWrong) {
  ASSERT_OK_AND_ASSIGN(const auto ids, ParseIntList("--prompt-ids", " [1, 2,-3] "));
  EXPECT_THAT(ids, ElementsAre(1, 2, -3));
  ASSERT_OK_AND_ASSIGN(const auto none, ParseIntList("--prompt-ids", ""));
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(ParseIntList("--prompt-ids", "1,x"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--prompt-ids: item 1 is 'x'")));
  EXPECT_THAT(ParseIntList("--prompt-ids", "1,,2"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item 1")));
  EXPECT_THAT(ParseIntList("--prompt-ids", "99999999999"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item 0")));
}

}  // namespace
}  // namespace baton::cli
