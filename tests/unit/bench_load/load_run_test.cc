// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/load_run.h"
#include "deploy/bench/measurement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton::bench {
namespace {

using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::string_view kPiece = "data: {\"choices\":[{\"index\":0,\"text\":\" a\"}]}\n\n";
constexpr absl::string_view kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}},"
    "\"timeline\":{\"prefill_ms\":2.5,\"reason\":\"always\"}}\n\n";

// Answers /v1/completions and /v1/chat/completions as told; the last answer repeats.
class LoadRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Start({.address = "127.0.0.1:0"}, [this](HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
      MutexLock lock(&mutex_);
      ++num_open_;
      most_open_ = std::max(most_open_, num_open_);
      bodies_.push_back(request.body);
      asked_.NotifyAll();
      if (answers_.size() > 1) {
        Answer(answers_.front(), writer);
        answers_.erase(answers_.begin());
      } else {
        Answer(answers_.front(), writer);
      }
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void Answer(const std::string& answer, const std::shared_ptr<HttpResponseWriter>& writer) {
    if (answer == "never") {
      held_.push_back(writer);
      writer->StartStream(200, "text/event-stream");
      writer->Write(kPiece);
      return;
    }
    --num_open_;
    if (answer == "503") {
      writer->Send(503, "application/json", "{\"error\":{\"message\":\"no worker\",\"code\":\"unavailable\"}}");
      return;
    }
    writer->StartStream(200, "text/event-stream");
    const bool silent = answer == "nothing" || answer == "role";
    if (answer == "role") writer->Write("data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
    for (int i = 0; i < 3 && !silent; ++i) writer->Write(kPiece);
    if (answer == "error") writer->Write("data: {\"error\":{\"message\":\"worker lost\"}}\n\n");
    if (answer != "nothing") writer->Write(kUsage);
    if (answer != "cut") writer->Write("data: [DONE]\n\n");
    writer->Finish();
  }

  LoadOptions Options() const { return {.url = absl::StrCat("http://", server_->address()), .model = "m"}; }

  LoadResult Run(const LoadOptions& options) {
    auto run = LoadRun::Create(options);
    EXPECT_TRUE(run.ok()) << run.status();
    return (*run)->Run([](const LoadProgress&) {});
  }

  Mutex mutex_;
  CondVar asked_;
  std::vector<std::string> answers_ = {"ok"};
  std::vector<std::string> bodies_;
  std::vector<std::shared_ptr<HttpResponseWriter>> held_;
  int num_open_ = 0, most_open_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(LoadRunTest, AClosedLoopSendsEveryRequestAndReadsTheUsage) {
  LoadOptions options = Options();
  options.workload = {.concurrency = 3, .num_requests = 20, .input_tokens = 5};
  const LoadResult result = Run(options);
  ASSERT_EQ(result.measurements.size(), 20u);
  for (const Measurement& m : result.measurements) {
    EXPECT_TRUE(m.status.ok()) << m.status;
    EXPECT_EQ(m.prompt_tokens, 9);
    EXPECT_EQ(m.cached_tokens, 4);
    EXPECT_EQ(m.output_tokens, 3);
    EXPECT_EQ(m.pieces.size(), 3u);
    EXPECT_EQ(m.timeline_ms.size(), 1u);
    EXPECT_GE(m.ended, m.sent);
  }
  const auto body = ParseJson(bodies_[0]);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ((*body)["prompt"].size(), 5u);
  EXPECT_TRUE((*body)["stream"].get<bool>());
}

TEST_F(LoadRunTest, EveryKindOfFailureIsTold) {
  answers_ = {"503", "error", "cut", "ok"};
  LoadOptions options = Options();
  options.workload = {.concurrency = 1, .num_requests = 4};
  const LoadResult result = Run(options);
  ASSERT_EQ(result.measurements.size(), 4u);
  EXPECT_THAT(result.measurements[0].status, StatusIs(absl::StatusCode::kUnavailable, "no worker"));
  EXPECT_EQ(result.measurements[0].http_status, 503);
  EXPECT_THAT(result.measurements[1].status, StatusIs(absl::StatusCode::kUnavailable, "worker lost"));
  EXPECT_THAT(result.measurements[2].status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("[DONE]")));
  EXPECT_TRUE(result.measurements[3].status.ok());
}

// E01. Nothing that came is no first token at time 0.
TEST_F(LoadRunTest, AStreamWithoutContentIsAFailureWithoutATimeToFirstToken) {
  answers_ = {"nothing", "role", "ok"};
  LoadOptions options = Options();
  options.workload = {.concurrency = 1, .num_requests = 3};
  const LoadResult result = Run(options);
  ASSERT_EQ(result.measurements.size(), 3u);
  const Report report = MakeReport(result.measurements, result.issue_end);
  EXPECT_EQ(report.num_succeeded, 1);
  EXPECT_EQ(report.num_failed, 2);
  EXPECT_EQ(report.errors.at("200 no token came"), 2);
  EXPECT_EQ(report.ttft_ms.count, 1u);
  EXPECT_GT(report.ttft_ms.mean, 0);
  EXPECT_EQ(report.output_tokens, 3);
}

TEST_F(LoadRunTest, AConversationRepeatsWhatWasSaid) {
  LoadOptions options = Options();
  options.workload = {.concurrency = 1, .num_requests = 3, .kind = PromptKind::kChat, .input_tokens = 2, .turns = 3};
  EXPECT_EQ(Run(options).measurements.size(), 3u);
  const auto last = ParseJson(bodies_[2]);
  ASSERT_TRUE(last.ok());
  std::vector<std::string> roles;
  for (const auto& message : (*last)["messages"]) roles.push_back(message["role"]);
  EXPECT_THAT(roles, ElementsAre("user", "assistant", "user", "assistant", "user"));
  EXPECT_EQ((*last)["messages"][1]["content"], " a a a");
}

TEST_F(LoadRunTest, AnOpenLoopKeepsItsBoundAndStopCutsWhatRuns) {
  answers_ = {"never"};
  LoadOptions options = Options();
  options.workload = {.arrival = Arrival::kPoisson, .request_rate = 100000, .concurrency = 4, .num_requests = 50};
  auto run = LoadRun::Create(options);
  ASSERT_TRUE(run.ok()) << run.status();
  Thread stopper("stopper", [&] {
    {
      MutexLock lock(&mutex_);
      while (bodies_.size() < 4) asked_.WaitFor(&mutex_, absl::Seconds(1));
    }
    (*run)->Stop();
  });
  const LoadResult result = (*run)->Run([](const LoadProgress&) {});
  stopper.Join();
  EXPECT_EQ(most_open_, 4);
  ASSERT_EQ(result.measurements.size(), 4u);
  for (const Measurement& m : result.measurements) EXPECT_THAT(m.status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
}

TEST_F(LoadRunTest, NobodyListeningIsAFailedRequestAndABadUrlNoRunAtAll) {
  LoadOptions options = Options();
  server_.reset();
  options.workload = {.concurrency = 1, .num_requests = 1};
  const LoadResult result = Run(options);
  ASSERT_EQ(result.measurements.size(), 1u);
  EXPECT_THAT(result.measurements[0].status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("connecting")));
  options.url = "ftp://127.0.0.1:1";
  EXPECT_THAT(LoadRun::Create(options).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("http://")));
}

}  // namespace
}  // namespace baton::bench
