// SPDX-License-Identifier: Apache-2.0
// Processes that die or are told to end while requests run: an answer or UNAVAILABLE soon, and then service again.
#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/sanitizers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kContext = 4096;
// Lengths in tokens of what is to run for a while; a sanitizer's build needs less of it for that.
constexpr int kLong = kSlowness > 1 ? 1024 : 4096;
constexpr int kLongPrompt = kLong - 96;
constexpr int kLongAnswer = kSlowness > 1 ? 800 : 3000;

class ClusterFaultsTest : public ::testing::Test {
 protected:
  void StartCluster(const std::vector<std::string>& flags) {
    TinyModelOptions options;
    options.context_length = kContext;
    options.num_layers = 4;  // So that a request lasts a while.
    options.hidden_size = 128;
    options.num_heads = 8;
    options.intermediate_size = 512;
    ASSERT_OK_AND_ASSIGN(cluster_, LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel(options).Build()), flags));
  }
  void TearDown() override {
    if (HasFailure() && cluster_ != nullptr) std::fputs(cluster_->log().c_str(), stderr);
  }
  bool ServesAgain() {
    return Eventually([&] { return cluster_->Generate(GreedyRequest({5, 6, 7}, 3)).ok(); });
  }

  std::unique_ptr<LocalCluster> cluster_;
};

std::vector<int> LongPrompt(int length) {
  std::vector<int> prompt(length);
  for (int i = 0; i < length; ++i) prompt[i] = 3 + (i * 31 + i / 7) % 256;
  return prompt;
}

// A request that runs while `kill` is called after `after` messages. What it ended with, and how long after the kill.
struct Interrupted {
  absl::Status status;
  absl::Duration after_kill;
  int tokens = 0;
};
Interrupted RunAndKill(const LocalCluster& cluster, const v1::GenerateRequest& request, pid_t victim, int after) {
  cli::RouterClient client(cluster.grpc());
  Interrupted result;
  int seen = 0;
  std::atomic<bool> over = false;
  MonotonicTime killed_at = Clock::Real()->Now();
  const auto kill_now = [&] {
    killed_at = Clock::Real()->Now();
    kill(victim, SIGKILL);
  };
  std::thread killer;
  if (after == 0) {
    killer = std::thread([&] {
      Eventually(
          [&] {
            const auto worker = cluster.Metric(cluster.status(), "baton_requests", "state=\"running\"");
            return over || (worker.ok() && *worker > 0);
          },
          absl::Seconds(5));
      kill_now();
    });
  }
  result.status = client.Generate(request, kPatience, [&](const v1::GenerateResponse& response) {
    for (const auto& delta : response.deltas()) result.tokens += delta.token_ids_size();
    if (++seen == after) kill_now();
  });
  over = true;
  if (killer.joinable()) killer.join();
  result.after_kill = Clock::Real()->Now() - killed_at;
  return result;
}

// A worker that dies while the KV cache travels, by every way that it travels.
class ClusterKillTest : public ClusterFaultsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void StartPair(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--prefill=1", "--decode=1", absl::StrCat("--transport=", GetParam())});
    ASSERT_NO_FATAL_FAILURE(StartCluster(flags));
    ASSERT_OK_AND_ASSIGN(const cli::Answer answer, cluster_->Generate(GreedyRequest(LongPrompt(40), 2)));
    EXPECT_EQ(answer.timeline.transport(), GetParam());
  }
  // Answered, or refused soon; then the pair works as before and holds nothing.
  void ExpectOverIt(const Interrupted& result, int tokens) {
    if (result.status.ok()) {
      EXPECT_EQ(result.tokens, tokens);  // Recovered: nothing lost, nothing twice.
    } else {
      EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
      EXPECT_LT(result.after_kill, absl::Seconds(2) * kSlowness);
    }
    EXPECT_TRUE(ServesAgain());
    EXPECT_TRUE(Eventually([&] {
      const auto answer = cluster_->Generate(GreedyRequest(LongPrompt(40), 2));
      return answer.ok() && answer->timeline.disaggregated() && answer->timeline.transport() == GetParam();
    }));
    EXPECT_TRUE(Eventually([&] { return cluster_->Idle(); }));
  }
};

TEST_P(ClusterKillTest, DecodeWorkerInMidTransfer) {
  ASSERT_NO_FATAL_FAILURE(StartPair());
  const pid_t victim = cluster_->PidOf("d-1");
  ASSERT_GT(victim, 0);
  ExpectOverIt(RunAndKill(*cluster_, GreedyRequest(LongPrompt(kLongPrompt), 5), victim, 0), 5);
}

TEST_P(ClusterKillTest, PrefillWorkerInMidTransfer) {
  ASSERT_NO_FATAL_FAILURE(StartPair());
  const pid_t victim = cluster_->PidOf("p-1");
  ASSERT_GT(victim, 0);
  ExpectOverIt(RunAndKill(*cluster_, GreedyRequest(LongPrompt(kLongPrompt), 5), victim, 0), 5);
}

// A01: nobody wants the four prompts any more, and their writer is stopped. Before it begins it has no grant; in the middle of a
// transfer it has, and what it may write to is kept back until its process has ended.
TEST_P(ClusterKillTest, AStoppedPrefillWorkerThatIsThenKilledKeepsNoBlock) {
  ASSERT_NO_FATAL_FAILURE(StartPair({absl::StrCat("--kv-memory=", kLong * 512)}));  // Four of the prompts.
  ASSERT_OK_AND_ASSIGN(const v1::Worker decode, cluster_->Worker("d-1"));
  const auto blocks = [&](const char* state) {
    return cluster_->Metric(decode.status(), "baton_kv_blocks", absl::StrCat("state=\"", state, "\"")).value_or(-1);
  };
  for (const bool writing : {false, true}) {
    const pid_t victim = cluster_->PidOf("p-1");
    ASSERT_GT(victim, 0);
    if (!writing) kill(victim, SIGSTOP);
    std::vector<std::unique_ptr<cli::RouterClient>> clients;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<cli::RouterClient>(cluster_->grpc()));
      std::vector<int> prompt = LongPrompt(kLong / 4 - 24);
      prompt[0] = 10 + i + (writing ? 4 : 0);  // Nothing of another one is of use.
      threads.emplace_back([client = clients.back().get(), prompt] {
        client->Generate(GreedyRequest(prompt, 20), kPatience, [](const auto&) {}).IgnoreError();
      });
    }
    EXPECT_TRUE(Eventually([&] { return blocks("used") > 0; }));
    if (writing) kill(victim, SIGSTOP);
    for (const auto& client : clients) client->Cancel();
    for (std::thread& thread : threads) thread.join();
    kill(victim, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return blocks("used") == 0 && blocks("quarantined") == 0; }, absl::Seconds(10) * kSlowness))
        << blocks("used") << " used, " << blocks("quarantined") << " quarantined, " << (writing ? "in" : "before") << " the transfer";
    // A fresh one comes, and a request that needs every block of the pool gets them.
    EXPECT_TRUE(Eventually([&] { return cluster_->PidOf("p-1") > 0 && cluster_->PidOf("p-1") != victim; }));
    EXPECT_TRUE(Eventually([&] {
      const auto answer = cluster_->Generate(GreedyRequest(LongPrompt(kLongPrompt), 90));
      return answer.ok() && answer->choices.at(0).token_ids.size() == 90;
    }));
    EXPECT_TRUE(Eventually([&] { return cluster_->Idle(); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ClusterKillTest, ::testing::Values("shm", "tcp", "grpc"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ClusterFaultsTest, DecodeWorkerKilledInMidRequest) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1"}));
  const pid_t victim = cluster_->PidOf("d-1");
  ASSERT_GT(victim, 0);
  const v1::GenerateRequest request = GreedyRequest(LongPrompt(64), kLongAnswer);
  const Interrupted result = RunAndKill(*cluster_, request, victim, 3);
  if (result.status.ok()) {
    EXPECT_EQ(result.tokens, kLongAnswer);  // Recovered: nothing lost, nothing twice.
  } else {
    EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
    EXPECT_LT(result.after_kill, absl::Seconds(2) * kSlowness);
  }
  EXPECT_TRUE(ServesAgain());
  EXPECT_NE(cluster_->PidOf("d-1"), victim);
  EXPECT_THAT(cluster_->log(), HasSubstr("decode d-1 ended with signal 9"));
}

TEST_F(ClusterFaultsTest, PrefillWorkerKilledInMidRequest) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1"}));
  const pid_t victim = cluster_->PidOf("p-1");
  ASSERT_GT(victim, 0);
  const Interrupted result = RunAndKill(*cluster_, GreedyRequest(LongPrompt(kLongPrompt), 5), victim, 0);
  if (result.status.ok()) {
    EXPECT_EQ(result.tokens, 5);
  } else {
    EXPECT_THAT(result.status, StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
    EXPECT_LT(result.after_kill, absl::Seconds(2) * kSlowness);
  }
  EXPECT_TRUE(ServesAgain());
  // The new one is used as soon as it has registered.
  EXPECT_TRUE(Eventually([&] {
    const auto answer = cluster_->Generate(GreedyRequest(LongPrompt(40), 2));
    return answer.ok() && answer->timeline.disaggregated() && cluster_->PidOf("p-1") > 0;
  }));
  EXPECT_TRUE(Eventually([&] { return cluster_->Idle(); }));
}

TEST_F(ClusterFaultsTest, WithASecondDecodeWorkerTheStreamGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=2"}));
  const v1::GenerateRequest request = GreedyRequest(LongPrompt(64), kLongAnswer);
  ASSERT_OK_AND_ASSIGN(const cli::Answer whole, cluster_->Generate(request));
  cli::RouterClient client(cluster_->grpc());
  cli::Answer answer;
  int seen = 0;
  bool killed = false;
  const absl::Status status = client.Generate(request, kPatience, [&](const v1::GenerateResponse& response) {
    answer.Add(response);
    if (++seen != 3) return;
    for (const char* id : {"d-1", "d-2"}) {
      const auto worker = cluster_->Worker(id);
      const auto running = worker.ok() ? cluster_->Metric(worker->status(), "baton_requests", "state=\"running\"") : worker.status();
      if (running.ok() && *running > 0) {
        kill(cluster_->PidOf(id), SIGKILL);
        killed = true;
        return;
      }
    }
  });
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(answer.choices.at(0).token_ids, whole.choices.at(0).token_ids);
  if (killed) {
    EXPECT_GE(answer.timeline.recoveries() + answer.timeline.attempts(), 1);
  }
}

// D03, of whole processes: stopped ones say nothing, so the router is not ready and says why; it lives all the while.
TEST_F(ClusterFaultsTest, AStoppedWorkerIsOutUntilItGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1"}));
  const auto page = [&](const char* path, int status, const char* text) {
    return Eventually([&] {
      const auto response = HttpGet(cluster_->status(), path);
      return response.ok() && response->status == status && response->body.find(text) != std::string::npos;
    });
  };
  ASSERT_TRUE(page("/ready", 200, ""));
  for (const char* id : {"d-1", "p-1"}) {
    const pid_t worker = cluster_->PidOf(id);
    ASSERT_GT(worker, 0);
    kill(worker, SIGSTOP);
    // Under sanitizers two heartbeats are longer than the connection's keepalive, which then finds the silence first.
    const std::string reason = kSlowness == 1 ? absl::StrCat(id, ": silent for two heartbeats") : id[0] == 'd' ? "decode" : "prefill";
    EXPECT_TRUE(page("/ready", 503, reason.c_str())) << HttpGet(cluster_->status(), "/ready")->body;
    EXPECT_TRUE(page("/health", 200, ""));
    kill(worker, SIGCONT);
    EXPECT_TRUE(page("/ready", 200, "")) << id;
  }
  EXPECT_TRUE(ServesAgain());
}

TEST_F(ClusterFaultsTest, ADrainLetsRunningRequestsFinish) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1", "--grace=50s"}));
  cli::RouterClient client(cluster_->grpc());
  int seen = 0;
  int tokens = 0;
  const absl::Status status = client.Generate(GreedyRequest(LongPrompt(32), kLongAnswer / 3), kPatience, [&](const v1::GenerateResponse& response) {
    for (const auto& delta : response.deltas()) tokens += delta.token_ids_size();
    if (++seen == 2) cluster_->Signal(SIGTERM);
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(tokens, kLongAnswer / 3);
  const auto exit = cluster_->WaitForExit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_TRUE(exit->clean()) << cli::Describe(*exit);
}

TEST_F(ClusterFaultsTest, ASecondSignalEndsEverythingAtOnce) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--local-prefill", "--grace=50s"}));
  const pid_t worker = cluster_->PidOf("d-1");
  ASSERT_GT(worker, 0);
  cli::RouterClient client(cluster_->grpc());
  int seen = 0;
  const absl::Status status = client.Generate(GreedyRequest(LongPrompt(32), kLongAnswer), kPatience, [&](const auto&) {
    if (++seen != 2) return;
    cluster_->Signal(SIGINT);
    Eventually([&] { return cluster_->log().find("draining: running requests") != std::string::npos; });
    cluster_->Signal(SIGINT);
  });
  EXPECT_FALSE(status.ok());
  const auto exit = cluster_->WaitForExit();
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 1);
  EXPECT_NE(kill(worker, 0), 0) << "a worker outlived its supervisor";
}

TEST_F(ClusterFaultsTest, EverythingEndsWithItsParent) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--local-prefill"}));
  ASSERT_OK_AND_ASSIGN(const v1::Worker worker, cluster_->Worker("d-1"));
  cluster_->Signal(SIGKILL);
  ASSERT_TRUE(cluster_->WaitForExit().has_value());
  // Whoever adopts them may leave them as zombies: what counts is that nobody answers.
  EXPECT_TRUE(Eventually([&] {
    cli::RouterClient client(cluster_->grpc());
    return absl::IsUnavailable(client.GetCluster(absl::Seconds(1)).status());
  }));
  EXPECT_TRUE(Eventually([&] { return !cluster_->Metric(worker.status(), "baton_requests").ok(); }));
}

TEST_F(ClusterFaultsTest, ABadModelFileEndsTheStartWithTheReason) {
  const std::string path = WriteTempFile("bad.gguf", "GGUF\3");
  const Finished finished = RunBaton({"serve", "--model=" + path, "--grpc=127.0.0.1:0", "--http=127.0.0.1:0"});
  EXPECT_EQ(finished.exit.code, 1) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("ended with exit code 1; its last lines"));
  EXPECT_THAT(finished.output, HasSubstr("bad.gguf"));
  const Finished missing = RunBaton({"serve", "--model=/nowhere.gguf", "--grpc=127.0.0.1:0"});
  EXPECT_EQ(missing.exit.code, 1);
  EXPECT_THAT(missing.output, HasSubstr("/nowhere.gguf"));
}

}  // namespace
}  // namespace baton::testing
