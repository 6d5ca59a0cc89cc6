// SPDX-License-Identifier: Apache-2.0
// One router, one prefill worker and one decode worker as real processes, over a seeded random model: what a client sees,
// and that handing the KV cache over changes no token.
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kContext = 1024;

std::string WriteTinyModel() {
  TinyModelOptions options;
  options.context_length = kContext;
  return WriteTempFile("tiny.gguf", TinyModel(options).Build());
}

class ClusterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto started = LocalCluster::Start(WriteTinyModel(), {"--prefill=1", "--decode=1"});
    if (started.ok()) cluster_ = started->release();
    else start_error_ = new std::string(started.status().ToString());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
    delete start_error_;
    start_error_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(cluster_, nullptr) << *start_error_; }
  void TearDown() override {
    if (HasFailure() && cluster_ != nullptr) std::fputs(cluster_->log().c_str(), stderr);
  }

  static LocalCluster* cluster_;
  static std::string* start_error_;
};
LocalCluster* ClusterTest::cluster_ = nullptr;
std::string* ClusterTest::start_error_ = nullptr;

// Prompts of many lengths, on and beside the edges of blocks.
std::vector<std::vector<int>> Prompts(int count) {
  std::mt19937 random(7);
  std::vector<std::vector<int>> prompts;
  for (const int length : {1, 2, 15, 16, 17, 31, 33, 64, 100, 129, 300, 700}) {
    std::vector<int> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back(3 + static_cast<int>(random() % 256));
    prompts.push_back(std::move(prompt));
  }
  while (static_cast<int>(prompts.size()) < count) {
    std::vector<int> prompt(5 + random() % 60);
    for (int& token : prompt) token = 3 + static_cast<int>(random() % 256);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// Where a prompt is computed changes no token, and what is computed sooner than it is handed over does not cross: by the rates of so
// small a model that is chance, so each way is made sure of.
TEST_F(ClusterTest, AdaptiveComputesShortRestsWhereTheyLand) {
  ASSERT_OK_AND_ASSIGN(const auto adaptive,
                       LocalCluster::Start(WriteTinyModel(), {"--prefill=1", "--decode=1", "--disaggregate=adaptive"}));
  ASSERT_OK_AND_ASSIGN(const auto far, LocalCluster::Start(WriteTinyModel(), {"--prefill=1", "--decode=1", "--disaggregate=adaptive",
                                                                              "--router-flags=--handoff-time=10m"}));
  for (std::vector<int> prompt : Prompts(12)) {
    prompt.insert(prompt.begin(), 7);  // The other tests' prompts are not to be found in any cache.
    SCOPED_TRACE(absl::StrCat("prompt of ", prompt.size()));
    ASSERT_OK_AND_ASSIGN(const cli::Answer always, cluster_->Generate(GreedyRequest(prompt, 40)));
    ASSERT_OK_AND_ASSIGN(const cli::Answer answer, adaptive->Generate(GreedyRequest(prompt, 40)));
    EXPECT_EQ(answer.choices[0].token_ids, always.choices[0].token_ids);
    ASSERT_OK_AND_ASSIGN(const cli::Answer here, far->Generate(GreedyRequest(prompt, 40)));
    EXPECT_EQ(here.choices[0].token_ids, always.choices[0].token_ids);
    EXPECT_EQ(here.timeline.reason(), "short");
    EXPECT_FALSE(here.timeline.disaggregated());
    // The next turn: all before it is cached at its decode worker.
    std::vector<int> next = prompt;
    next.insert(next.end(), answer.choices[0].token_ids.begin(), answer.choices[0].token_ids.end());
    for (int i = 0; i < 20; ++i) next.push_back(5 + i);
    ASSERT_OK_AND_ASSIGN(const cli::Answer second, adaptive->Generate(GreedyRequest(next, 8)));
    ASSERT_OK_AND_ASSIGN(const cli::Answer second_here, far->Generate(GreedyRequest(next, 8)));
    EXPECT_GE(second_here.usage.cached_tokens() + 20 + 16, static_cast<int>(next.size()));
    ASSERT_OK_AND_ASSIGN(const cli::Answer expected, cluster_->Generate(GreedyRequest(next, 8)));
    EXPECT_EQ(second.choices[0].token_ids, expected.choices[0].token_ids);
    EXPECT_EQ(second_here.choices[0].token_ids, expected.choices[0].token_ids);
  }
}

// All prompts at once, each on a connection of its own.
std::vector<absl::StatusOr<cli::Answer>> GenerateTogether(const LocalCluster& cluster, const std::vector<std::vector<int>>& prompts,
                                                          int num_tokens) {
  std::vector<absl::StatusOr<cli::Answer>> answers(prompts.size(), absl::UnknownError(""));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = cluster.Generate(GreedyRequest(prompts[i], num_tokens)); });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

TEST_F(ClusterTest, TheSameTokensAsInOneProcess) {
  ASSERT_OK_AND_ASSIGN(const auto local, LocalCluster::Start(WriteTinyModel(), {"--local-prefill"}));
  const auto prompts = Prompts(12);
  for (const std::vector<int>& prompt : prompts) {
    SCOPED_TRACE(absl::StrCat("prompt of ", prompt.size()));
    ASSERT_OK_AND_ASSIGN(const cli::Answer apart, cluster_->Generate(GreedyRequest(prompt, 24)));
    ASSERT_OK_AND_ASSIGN(const cli::Answer together, local->Generate(GreedyRequest(prompt, 24)));
    EXPECT_EQ(apart.choices.at(0).token_ids.size(), 24u);
    EXPECT_EQ(apart.choices.at(0).token_ids, together.choices.at(0).token_ids);
    EXPECT_EQ(apart.choices.at(0).finish_reason, "length");
    EXPECT_EQ(apart.timeline.disaggregated(), prompt.size() > 1);  // Decode computes the last token itself.
    EXPECT_FALSE(together.timeline.disaggregated());
    EXPECT_EQ(apart.timeline.decode_worker(), "d-1");
    EXPECT_EQ(apart.usage.prompt_tokens(), static_cast<int>(prompt.size()));
    EXPECT_EQ(apart.usage.completion_tokens(), 24);
  }
}

TEST_F(ClusterTest, ABatchOfMixedRequestsGivesTheTokensOfEachAlone) {
  const auto prompts = Prompts(32);
  const auto batch = GenerateTogether(*cluster_, prompts, 40);
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("prompt ", i, " of ", prompts[i].size()));
    ASSERT_TRUE(batch[i].ok()) << batch[i].status();
    ASSERT_OK_AND_ASSIGN(const cli::Answer alone, cluster_->Generate(GreedyRequest(prompts[i], 40)));
    EXPECT_EQ(batch[i]->choices.at(0).token_ids, alone.choices.at(0).token_ids);
  }
  EXPECT_TRUE(Eventually([&] { return cluster_->Idle(); }));
}

// Choices fork off one landing: the prompt crosses once, and each has the draws that it has anywhere.
TEST_F(ClusterTest, ChoicesShareTheirPrompt) {
  ASSERT_OK_AND_ASSIGN(const auto local, LocalCluster::Start(WriteTinyModel(), {"--local-prefill"}));
  ASSERT_OK_AND_ASSIGN(const v1::Worker decode, cluster_->Worker("d-1"));
  for (const int length : {33, 200, 310}) {
    SCOPED_TRACE(length);
    std::vector<int> prompt(static_cast<size_t>(length), 11);
    prompt[0] = 12 + length % 100;
    v1::GenerateRequest request = GreedyRequest(prompt, 24);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(5);
    request.set_n(5);
    ASSERT_OK_AND_ASSIGN(const double before, cluster_->Metric(decode.status(), "baton_kv_transfers_total"));
    ASSERT_OK_AND_ASSIGN(const cli::Answer answer, cluster_->Generate(request));
    ASSERT_OK_AND_ASSIGN(const double after, cluster_->Metric(decode.status(), "baton_kv_transfers_total"));
    EXPECT_EQ(after - before, 1);
    ASSERT_OK_AND_ASSIGN(const cli::Answer expected, local->Generate(request));
    ASSERT_EQ(answer.choices.size(), 5u);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(answer.choices[i].token_ids, expected.choices[i].token_ids) << i;
    EXPECT_NE(answer.choices[0].token_ids, answer.choices[1].token_ids);
    request.set_n(1);
    ASSERT_OK_AND_ASSIGN(const cli::Answer alone, cluster_->Generate(request));
    EXPECT_EQ(alone.choices[0].token_ids, answer.choices[0].token_ids);
  }
}

TEST_F(ClusterTest, ThePromptIsComputedByPrefillAndCrosses) {
  ASSERT_OK_AND_ASSIGN(const v1::Worker prefill, cluster_->Worker("p-1"));
  ASSERT_OK_AND_ASSIGN(const v1::Worker decode, cluster_->Worker("d-1"));
  const auto computed = [&](const v1::Worker& worker) {
    const auto value = cluster_->Metric(worker.status(), "baton_prompt_tokens_computed_total");
    return value.ok() ? *value : -1;
  };
  const auto transfers = [&] {
    const auto value = cluster_->Metric(decode.status(), "baton_kv_transfers_total", "result=\"ok\"");
    return value.ok() ? *value : 0;
  };
  const double computed_before = computed(prefill), transfers_before = transfers();
  std::vector<int> prompt;
  for (int i = 0; i < 200; ++i) prompt.push_back(3 + (i * 37) % 251);
  ASSERT_OK_AND_ASSIGN(const cli::Answer answer, cluster_->Generate(GreedyRequest(prompt, 4)));
  EXPECT_EQ(answer.timeline.prefill_worker(), "p-1");
  EXPECT_GT(answer.timeline.kv_bytes(), 0);
  EXPECT_EQ(answer.timeline.transport(), "shm");  // The best that two processes of one machine have.
  EXPECT_EQ(computed(prefill) - computed_before, 199);
  EXPECT_EQ(transfers() - transfers_before, 1);
}

TEST_F(ClusterTest, ACancelFreesEveryBlockOnBothWorkers) {
  for (const int after : {0, 1, 5}) {
    SCOPED_TRACE(absl::StrCat("cancelled after ", after, " messages"));
    std::vector<int> prompt(600, 3 + after);
    cli::RouterClient client(cluster_->grpc());
    int seen = 0;
    std::thread early;
    if (after == 0) {
      early = std::thread([&] {
        const auto running = [&] {
          const auto worker = cluster_->Worker("p-1");
          return worker.ok() && worker->running() + worker->waiting() > 0;
        };
        Eventually(running, absl::Milliseconds(200));  // Or it was too quick to be seen: then between tokens.
        client.Cancel();
      });
    }
    const absl::Status status = client.Generate(GreedyRequest(prompt, kContext - 600), kPatience, [&](const auto&) {
      if (++seen == after) client.Cancel();
    });
    if (early.joinable()) early.join();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    EXPECT_TRUE(Eventually([&] { return cluster_->Idle(); }, absl::Seconds(10) * kSlowness));
  }
  EXPECT_THAT(cluster_->Generate(GreedyRequest({5, 6, 7}, 2)), IsOk());
}

TEST_F(ClusterTest, BadRequestsNameTheField) {
  v1::GenerateRequest request = GreedyRequest({5}, 1);
  request.set_model("no-such-model");
  EXPECT_THAT(cluster_->Generate(request), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no-such-model")));
  EXPECT_THAT(cluster_->Generate(GreedyRequest({}, 1)), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  EXPECT_THAT(cluster_->Generate(GreedyRequest({5, 320}, 1)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("320")));
  EXPECT_THAT(cluster_->Generate(GreedyRequest({5, -1}, 1)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(cluster_->Generate(GreedyRequest({5}, kContext)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat(kContext))));
  request = GreedyRequest({5}, 1);
  request.mutable_sampling()->set_top_p(1.5);
  EXPECT_THAT(cluster_->Generate(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("top_p")));
}

TEST_F(ClusterTest, TheCommandLineAnswersInItsShapes) {
  const Finished generate = RunBaton({"generate", "--router=" + cluster_->grpc(), "--prompt=Hello", "--max-tokens=6",
                                      "--temperature=0", "--ignore-eos", "--logprobs=2", "--json"});
  ASSERT_TRUE(generate.exit.clean()) << generate.output;
  ASSERT_OK_AND_ASSIGN(const nlohmann::json answer, ParseJson(generate.output));
  EXPECT_EQ(answer["token_ids"].size(), 6u);
  EXPECT_EQ(answer["logprobs"].size(), 6u);
  EXPECT_EQ(answer["logprobs"][0]["top"].size(), 2u);
  EXPECT_EQ(answer["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][0]["text"], answer["text"]);
  EXPECT_EQ(answer["timeline"]["prefill_worker"], "p-1");

  const Finished status = RunBaton({"status", "--router=" + cluster_->grpc(), "--json"});
  ASSERT_TRUE(status.exit.clean()) << status.output;
  ASSERT_OK_AND_ASSIGN(const nlohmann::json listed, ParseJson(status.output));
  ASSERT_EQ(listed["workers"].size(), 2u);
  for (const auto& worker : listed["workers"]) {
    EXPECT_TRUE(worker["ready"].get<bool>());
    ASSERT_OK_AND_ASSIGN(const HttpResponse health, HttpGet(worker["status"].get<std::string>(), "/health"));
    EXPECT_EQ(health.status, 200);
  }

  const Finished refused = RunBaton({"generate", "--router=" + cluster_->grpc(), "--prompt=Hello", "--top-p=7", "--json"});
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("{\"error\":{\"code\":\"INVALID_ARGUMENT\""));
}

TEST_F(ClusterTest, TheHttpApiAnswers) {
  HttpFetchRequest request = {.address = cluster_->http(), .method = "POST", .target = "/v1/completions"};
  request.headers = {{"Content-Type", "application/json"}};
  request.body = R"({"prompt":"Hello","max_tokens":5,"temperature":0,"ignore_eos":true})";
  request.timeout = kPatience;
  ASSERT_OK_AND_ASSIGN(const HttpResponse response, HttpFetch(request));
  ASSERT_EQ(response.status, 200) << response.body;
  ASSERT_OK_AND_ASSIGN(const nlohmann::json answer, ParseJson(response.body));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5);
  request.body = R"({"model":"no-such-model","prompt":"Hello"})";
  ASSERT_OK_AND_ASSIGN(const HttpResponse refused, HttpFetch(request));
  EXPECT_EQ(refused.status, 404) << refused.body;
}

}  // namespace
}  // namespace baton::testing
