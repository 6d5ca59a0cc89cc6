// SPDX-License-Identifier: Apache-2.0
// Two routers before the same workers. The second one has no model of its own: its workers tell it the tokenizer.
#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/cluster_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster_load.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLongAnswer = 3000;

// A router that is no child of `baton serve`.
class OtherRouter {
 public:
  explicit OtherRouter(const std::string& grpc) : grpc_(grpc) { Start(); }

  void Start() {
    auto started = cli::ChildProcess::Start({BuildPath("bin/baton_router"), "--grpc=" + grpc_, "--http=", "--max-queue=64", "--model="}, {},
                                            [this](absl::string_view line) { absl::StrAppend(&log_, line, "\n"); });
    ASSERT_TRUE(started.ok()) << started.status();
    process_ = *std::move(started);
  }
  void Kill() {
    process_->Signal(SIGKILL);
    EXPECT_TRUE(Eventually([&] {
      process_->ReadOutput();
      return process_->Reap().has_value();
    }));
  }
  // What it says of itself.
  absl::StatusOr<v1::Router> Status() {
    process_->ReadOutput();
    cli::RouterClient client(grpc_);
    BATON_ASSIGN_OR_RETURN(const v1::GetClusterResponse cluster, client.GetCluster(absl::Seconds(5)));
    return cluster.router();
  }
  bool BecomesReady() {
    return Eventually([&] {
      const auto status = Status();
      return status.ok() && status->ready();
    });
  }
  absl::StatusOr<cli::Answer> Generate(const v1::GenerateRequest& request, const std::function<void()>& on_message = nullptr) const {
    cli::RouterClient client(grpc_);
    cli::Answer answer;
    BATON_RETURN_IF_ERROR(client.Generate(request, kPatience, [&](const v1::GenerateResponse& response) {
      answer.Add(response);
      if (on_message) on_message();
    }));
    return answer;
  }
  const std::string& log() const { return log_; }

 private:
  const std::string grpc_;
  std::string log_;
  std::unique_ptr<cli::ChildProcess> process_;
};

v1::GenerateRequest Chat(const std::string& text) {
  v1::GenerateRequest request = GreedyRequest({}, 12);
  request.clear_token_ids();
  v1::ChatMessage* const message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content(text);
  return request;
}

TEST(RoutersTest, ASecondOneWithoutAModelServesTheSameAndItsDeathIsItsClientsAlone) {
  ASSERT_OK_AND_ASSIGN(const std::string first, cli::WithFreePort("--grpc", "127.0.0.1:0"));
  ASSERT_OK_AND_ASSIGN(const std::string second, cli::WithFreePort("--grpc", "127.0.0.1:0"));
  OtherRouter other(second);
  ASSERT_TRUE(Eventually([&] { return other.Status().ok(); })) << other.log();
  EXPECT_THAT(other.Status()->reason(), HasSubstr("no model yet: no worker has registered"));
  EXPECT_THAT(other.Generate(Chat("Hello")), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no model yet")));

  TinyModelOptions options;
  options.context_length = kLongAnswer + 100;
  const std::string routers = absl::StrCat("--router=", first, ",", second);
  ASSERT_OK_AND_ASSIGN(const auto cluster,
                       LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel(options).Build()),
                                           {"--grpc=" + first, "--prefill=1", "--decode=1", "--prefill-flags=" + routers, "--decode-flags=" + routers}));
  ASSERT_TRUE(other.BecomesReady()) << other.log() << cluster->log();
  EXPECT_THAT(other.log(), HasSubstr("tokenizer and chat template are those of worker"));
  ASSERT_OK_AND_ASSIGN(const cli::Answer here, cluster->Generate(Chat("Hello, who are you?")));
  ASSERT_OK_AND_ASSIGN(const cli::Answer there, other.Generate(Chat("Hello, who are you?")));
  EXPECT_EQ(there.choices[0].token_ids, here.choices[0].token_ids);
  EXPECT_EQ(there.choices[0].text, here.choices[0].text);
  EXPECT_EQ(there.usage.prompt_tokens(), here.usage.prompt_tokens());
  EXPECT_EQ(there.model, here.model);

  // It dies in the middle of an answer, while clients of the first one ask.
  ClusterLoad load(cluster.get(), 2);
  std::atomic<int> messages = 0;
  absl::StatusOr<cli::Answer> cut = absl::UnknownError("");
  std::thread client([&] { cut = other.Generate(GreedyRequest({5, 6, 7}, kLongAnswer), [&] { ++messages; }); });
  EXPECT_TRUE(Eventually([&] { return messages >= 3; }));
  other.Kill();
  client.join();
  EXPECT_THAT(cut, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
  EXPECT_TRUE(load.WaitForMore(10));
  other.Start();
  EXPECT_TRUE(other.BecomesReady()) << other.log();
  ASSERT_OK_AND_ASSIGN(const cli::Answer again, other.Generate(Chat("Hello, who are you?")));
  EXPECT_EQ(again.choices[0].token_ids, here.choices[0].token_ids);
  EXPECT_TRUE(load.WaitForMore(10));
  load.Stop();
  EXPECT_THAT(load.wrong(), ::testing::IsEmpty());
  EXPECT_TRUE(Eventually([&] { return cluster->Idle(); }));  // Nothing is held for the one that died.
  other.Kill();
}

}  // namespace
}  // namespace baton::testing
