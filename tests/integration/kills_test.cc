// SPDX-License-Identifier: Apache-2.0
// Workers that are killed at random, one after the other, under half the load that the cluster can take: no stream ends with an
// error, none has another token than without the kills, and how long the streams stand still. BATON_KILLS: how many (README.md).
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "deploy/cli/cluster_plan.h"
#include "deploy/cli/supervisor.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/paths.h"
#include "tests/support/sanitizers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

constexpr int kClients = 6;
constexpr int kPrompts = 6;
constexpr int kPromptTokens = 300;
constexpr int kAnswerTokens = 400;
const absl::Duration kHeartbeat = absl::Milliseconds(500) * kSlowness;

int NumKills() {
  const char* const kills = std::getenv("BATON_KILLS");
  return kills != nullptr ? std::atoi(kills) : 8;
}

v1::GenerateRequest Request(int number) {
  std::vector<int> tokens;
  for (int i = 0; i < kPromptTokens + number; ++i) tokens.push_back(3 + (i * 31 + i / 5 + number * 7) % 250);
  return GreedyRequest(tokens, kAnswerTokens);
}

// A time in which a client waited: from its request, or a token, to the next token.
struct Wait {
  MonotonicTime begin, end;
};

// Asks the same prompts over and over, not more often than every `interval`, and holds each answer to what the prompt got at first.
class Client {
 public:
  Client(std::string address, int first, const std::vector<std::vector<int>>* expected, const std::atomic<int64_t>* interval_us)
      : address_(std::move(address)), expected_(expected), interval_us_(interval_us), thread_("client", [this, first] { Run(first); }) {}
  void Stop() {
    stop_ = true;
    thread_.Join();
  }
  int num_begun() const { return num_begun_; }
  // After Stop.
  const std::vector<Wait>& waits() const { return waits_; }
  const std::vector<std::string>& errors() const { return errors_; }
  int num_wrong() const { return num_wrong_; }

 private:
  void Run(int first) {
    cli::RouterClient client(address_);
    std::mt19937 rng(static_cast<unsigned>(first));
    for (int i = first; !stop_; ++i) {
      const MonotonicTime begin = Clock::Real()->Now();
      ++num_begun_;
      Ask(&client, i % kPrompts, begin);
      // Around the interval, so that the clients do not ask in step.
      const MonotonicTime next = begin + absl::Microseconds(interval_us_->load()) * std::uniform_real_distribution<>(0.5, 1.5)(rng);
      Eventually([&] { return stop_ || Clock::Real()->Now() >= next; });
    }
  }
  void Ask(cli::RouterClient* client, int prompt, MonotonicTime begin) {
    cli::Answer answer;
    MonotonicTime last = begin;
    const absl::Status status = client->Generate(Request(prompt), kPatience, [&](const v1::GenerateResponse& response) {
      answer.Add(response);
      if (response.deltas_size() == 0) return;
      const MonotonicTime now = Clock::Real()->Now();
      waits_.push_back({last, now});
      last = now;
    });
    if (!status.ok()) {
      errors_.push_back(status.ToString());
    } else if (answer.choices.at(0).token_ids != expected_->at(static_cast<size_t>(prompt))) {
      ++num_wrong_;
    }
  }

  const std::string address_;
  const std::vector<std::vector<int>>* const expected_;
  const std::atomic<int64_t>* const interval_us_;
  std::atomic<bool> stop_{false};
  std::atomic<int> num_begun_{0};
  std::vector<Wait> waits_;
  std::vector<std::string> errors_;
  int num_wrong_ = 0;
  Thread thread_;
};

class KillsTest : public ::testing::Test {
 protected:
  // As `baton serve` starts them, but who was killed is back at once, however often.
  void StartCluster() {
    TinyModelOptions options;
    options.context_length = 1024;
    options.num_layers = 4;  // So that a request lasts a while.
    options.hidden_size = 128;
    options.num_heads = 8;
    options.intermediate_size = 512;
    cli::ClusterPlan plan{.program_folder = BuildPath("bin"), .num_prefill = 2, .num_decode = 2, .disaggregate = "always"};
    plan.model = WriteTempFile("tiny.gguf", TinyModel(options).Build());
    ASSERT_OK_AND_ASSIGN(plan.grpc, cli::WithFreePort("--grpc", "127.0.0.1:0"));
    ASSERT_OK_AND_ASSIGN(plan.status, cli::WithFreePort("--status", "127.0.0.1:0"));
    plan.options = {{"threads", "1"}, {"kv_memory", "64MiB"}, {"grace", "5s"}, {"log_level", "warning"}};
    plan.router_flags = {absl::StrCat("--heartbeat=", absl::FormatDuration(kHeartbeat))};
    address_ = plan.grpc;
    ASSERT_OK_AND_ASSIGN(std::vector<cli::ChildSpec> specs, cli::PlanCluster(plan));
    supervisor_ = std::make_unique<cli::Supervisor>(cli::SupervisorOptions{.first_backoff = absl::Milliseconds(20),
                                                                           .max_backoff = absl::Milliseconds(20),
                                                                           .without_environment = {"BATON_MODEL", "BATON_CACHE_DIR", "BATON_CONFIG", "BATON_ROUTER", "BATON_THREADS"},
                                                                           .sink = [this](absl::string_view line) { absl::StrAppend(&log_, line, "\n"); }});
    ASSERT_THAT(supervisor_->Start(std::move(specs)), IsOk());
    supervisor_->KeepAlive();
    ASSERT_TRUE(TurnUntil([this] { return IsWhole(); })) << log_;
  }
  void TearDown() override {
    if (supervisor_ == nullptr) return;
    supervisor_->BeginDrain(absl::Seconds(10) * kSlowness);
    EXPECT_TRUE(TurnUntil([this] { return supervisor_->ended(); }));
    EXPECT_FALSE(HasSanitizerReport(log_)) << log_;
    if (HasFailure()) std::fputs(log_.substr(log_.size() - std::min<size_t>(log_.size(), 20000)).c_str(), stderr);
  }
  // The supervisor's work goes on meanwhile.
  bool TurnUntil(const std::function<bool()>& done) {
    return Eventually([&] {
      supervisor_->Turn(absl::Milliseconds(5));
      return done();
    });
  }
  void TurnFor(absl::Duration time) {
    const MonotonicTime end = Clock::Real()->Now() + time;
    TurnUntil([&] { return Clock::Real()->Now() >= end; });
  }
  bool IsWhole() {
    cli::RouterClient client(address_);
    const auto cluster = client.GetCluster(absl::Seconds(1));
    if (!cluster.ok()) return false;
    return std::count_if(cluster->workers().begin(), cluster->workers().end(), [](const v1::Worker& worker) { return worker.ready(); }) == 4;
  }
  std::vector<std::vector<int>> AskForAll() {
    std::vector<std::vector<int>> expected;
    for (int i = 0; i < kPrompts; ++i) {
      cli::RouterClient client(address_);
      cli::Answer answer;
      EXPECT_THAT(client.Generate(Request(i), kPatience, [&](const v1::GenerateResponse& response) { answer.Add(response); }), IsOk());
      expected.push_back(answer.choices.empty() ? std::vector<int>() : answer.choices[0].token_ids);
    }
    return expected;
  }
  void StartClients() {
    expected_ = AskForAll();
    for (int i = 0; i < kClients; ++i) clients_.push_back(std::make_unique<Client>(address_, i, &expected_, &interval_us_));
  }
  int NumBegun() const {
    int begun = 0;
    for (const auto& client : clients_) begun += client->num_begun();
    return begun;
  }
  // What the clients ask without a pause, halved. Returns requests per second of the whole.
  double HalveLoad() {
    const int before = NumBegun();
    const MonotonicTime begin = Clock::Real()->Now();
    TurnFor(absl::Seconds(3) * kSlowness);
    const double rate = (NumBegun() - before) / absl::ToDoubleSeconds(Clock::Real()->Now() - begin);
    interval_us_ = static_cast<int64_t>(1e6 * kClients / (rate / 2));
    return rate;
  }
  // Kills a worker. It is back, and no request of before is left, when this returns: none sees two deaths.
  void KillOne(const std::string& name) {
    const pid_t victim = supervisor_->pid(name);
    ASSERT_GT(victim, 0) << name;
    kills_.push_back(Clock::Real()->Now());
    kill(victim, SIGKILL);
    ASSERT_TRUE(TurnUntil([&] { return supervisor_->pid(name) > 0 && supervisor_->pid(name) != victim; })) << name;
    ASSERT_TRUE(TurnUntil([&] { return IsWhole(); })) << name;
    // A request that began before may have met this kill already, and would be taken for poison with the next one.
    std::vector<int> begun;
    for (const auto& client : clients_) begun.push_back(client->num_begun());
    ASSERT_TRUE(TurnUntil([&] {
      for (size_t i = 0; i < clients_.size(); ++i) {
        if (clients_[i]->num_begun() == begun[i]) return false;
      }
      return IsWhole();
    })) << name;
  }

  std::string address_, log_;
  std::unique_ptr<cli::Supervisor> supervisor_;
  std::vector<std::vector<int>> expected_;
  std::atomic<int64_t> interval_us_{0};
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<MonotonicTime> kills_;
};

std::string Describe(std::vector<absl::Duration> times) {
  if (times.empty()) return "none";
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) { return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))]; };
  return absl::StrCat("median ", absl::ToInt64Milliseconds(at(0.5)), " ms, p99 ", absl::ToInt64Milliseconds(at(0.99)), " ms, at most ",
                      absl::ToInt64Milliseconds(at(1)), " ms = ", absl::ToDoubleMilliseconds(at(1)) / absl::ToDoubleMilliseconds(kHeartbeat), " heartbeats");
}

TEST_F(KillsTest, NoStreamNoticesThatWorkersDie) {
  ASSERT_NO_FATAL_FAILURE(StartCluster());
  StartClients();
  const double capacity = HalveLoad();
  const std::vector<std::string> names = {"prefill p-1", "prefill p-2", "decode d-1", "decode d-2"};
  const int num_kills = NumKills();
  std::mt19937 rng(20261130);
  int num_prefill = 0;
  for (int i = 0; i < num_kills; ++i) {
    TurnFor(absl::Milliseconds(rng() % 300));
    const std::string& name = names[rng() % names.size()];
    num_prefill += name[0] == 'p';
    ASSERT_NO_FATAL_FAILURE(KillOne(name));
  }
  const int num_requests = NumBegun();
  std::vector<std::string> errors;
  std::vector<Wait> waits;
  int num_wrong = 0;
  for (const auto& client : clients_) {
    client->Stop();
    errors.insert(errors.end(), client->errors().begin(), client->errors().end());
    waits.insert(waits.end(), client->waits().begin(), client->waits().end());
    num_wrong += client->num_wrong();
  }
  std::vector<absl::Duration> first, every;  // From a kill to the next token of the stream that gets one first; of each.
  for (const MonotonicTime killed : kills_) {
    absl::Duration least = absl::InfiniteDuration();
    for (const Wait& wait : waits) {
      if (wait.begin > killed || wait.end < killed) continue;
      every.push_back(wait.end - killed);
      least = std::min(least, every.back());
    }
    if (least < absl::InfiniteDuration()) first.push_back(least);
  }
  std::printf("%d kills (%d of prefill workers), 2 + 2 workers, %d clients, half of %.1f requests/s; %d requests\n", num_kills, num_prefill, kClients,
              capacity, num_requests);
  std::printf("client-visible errors: %zu; wrong or doubled tokens: %d answers\n", errors.size(), num_wrong);
  std::printf("from a kill to the next token, of every stream: %s\n", Describe(every).c_str());
  std::printf("from a kill to the next token, of any stream: %s\n", Describe(first).c_str());
  EXPECT_TRUE(errors.empty()) << absl::StrJoin(errors, "\n");
  EXPECT_EQ(num_wrong, 0);
}

}  // namespace
}  // namespace baton::testing
