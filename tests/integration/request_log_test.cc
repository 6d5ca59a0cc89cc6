// SPDX-License-Identifier: Apache-2.0
// What the logs of a cluster say of its requests: a line each, for people or for programs, and never their text.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using nlohmann::json;

class RequestLogTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel().Build()),
                                                       {"--prefill=1", "--decode=1", "--log-level=debug", absl::StrCat("--log-format=", GetParam())}));
  }
  // The HTTP status of a completion.
  int Complete(const std::string& id, const json& body) {
    const auto response = HttpFetch({.address = cluster_->http(),
                                     .method = "POST",
                                     .target = "/v1/completions",
                                     .headers = {{"Content-Type", "application/json"}, {"X-Request-Id", id}},
                                     .body = body.dump(),
                                     .timeout = kPatience});
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->status : 0;
  }
  // The lines of a request, once there is one.
  std::vector<std::string> LinesOf(const std::string& id) {
    std::vector<std::string> lines;
    EXPECT_TRUE(Eventually([&] {
      lines.clear();
      for (absl::string_view line : absl::StrSplit(cluster_->log(), '\n')) {
        if (absl::StrContains(line, id)) lines.emplace_back(line);
      }
      return !lines.empty();
    })) << id;
    return lines;
  }

  std::unique_ptr<LocalCluster> cluster_;
};

TEST_P(RequestLogTest, OneLineEachWithTheTimelineAndWithoutText) {
  const bool for_programs = GetParam() == std::string("json");
  EXPECT_EQ(Complete("served-1", {{"prompt", "Xanadu, a stately dome"}, {"stop", {"Kubla"}}, {"max_tokens", 4}, {"ignore_eos", true}}), 200);
  // Refused when it was read, for what it asks of the model, and when its prompt was tokens.
  EXPECT_EQ(Complete("refused-1", {{"prompt", "Xanadu"}, {"stop", {{{"Kubla", 1}}}}}), 400);
  EXPECT_EQ(Complete("refused-2", {{"prompt", "Xanadu"}, {"model", "Kubla"}}), 404);
  EXPECT_EQ(Complete("refused-3", {{"prompt", std::string(4000, 'x') + "Xanadu"}}), 400);
  const std::vector<std::string> served = LinesOf("served-1");
  ASSERT_EQ(served.size(), 1u) << served[1];
  if (for_programs) {
    ASSERT_OK_AND_ASSIGN(const json line, ParseJson(served[0]));
    EXPECT_EQ(line["message"], "request");
    EXPECT_EQ(line["process"], "router");
    EXPECT_EQ(line["reason"], "length");
    EXPECT_EQ(line["status"], 200);
    EXPECT_EQ(line["client_id"], "served-1");
    EXPECT_EQ(line["completion_tokens"], 4);
    EXPECT_EQ(line["prefill"], "p-1");
    double sum = 0;
    for (const char* phase : {"queued", "tokenise", "landing", "prefill", "transfer_exposed", "first_step", "decode"}) {
      sum += line[absl::StrCat(phase, "_ms")].get<double>();
    }
    EXPECT_NEAR(sum, line["total_ms"].get<double>(), 0.5);  // Each is rounded to a tenth.
  } else {
    EXPECT_THAT(served[0], AllOf(HasSubstr(" info    router: request r-"), HasSubstr(" client_id=served-1 reason=length status=200 prompt_tokens="),
                                 HasSubstr(" completion_tokens=4 queued_ms="), HasSubstr(" total_ms="), HasSubstr(" decode=d-1 ")));
  }
  const std::vector<std::tuple<const char*, const char*, int>> others = {
      {"refused-1", "invalid_argument", 400}, {"refused-2", "not_found", 404}, {"refused-3", "invalid_argument", 400}};
  for (const auto& [id, reason, status] : others) {
    const std::vector<std::string> refused = LinesOf(id);
    EXPECT_EQ(refused.size(), 1u) << id;
    const char* const said = for_programs ? "\"status\":" : " status=";
    EXPECT_THAT(refused[0], AllOf(HasSubstr(for_programs ? absl::StrCat("\"reason\":\"", reason, "\"") : absl::StrCat(" reason=", reason)),
                                  HasSubstr(absl::StrCat(said, status))));
  }
  EXPECT_THAT(cluster_->log(), AllOf(Not(HasSubstr("Xanadu")), Not(HasSubstr("Kubla"))));
}

INSTANTIATE_TEST_SUITE_P(Formats, RequestLogTest, ::testing::Values("text", "json"), [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton::testing
