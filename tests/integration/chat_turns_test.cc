// SPDX-License-Identifier: Apache-2.0
// The second turn of a chat: what decode made while it generated is in its prefix cache, so that only the new message is computed
// and only its KV travels.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

constexpr int kHistory = 2000, kAnswer = 40, kNew = 30, kBlock = 16;

class ChatTurnsTest : public ::testing::Test {
 protected:
  void StartCluster(const std::string& disaggregate, const std::string& pull_history) {
    TinyModelOptions options;
    options.context_length = 4096;
    ASSERT_OK_AND_ASSIGN(cluster_, LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel(options).Build()),
                                                       {"--prefill=1", "--decode=1", "--disaggregate=" + disaggregate,
                                                        "--prefill-flags=--pull-history=" + pull_history,
                                                        // By the rates of so small a model it would be chance.
                                                        "--router-flags=--handoff-time=10m"}));
  }
  void TearDown() override {
    if (HasFailure() && cluster_ != nullptr) std::fputs(cluster_->log().c_str(), stderr);
  }
  double Computed(const char* worker) {
    const auto found = cluster_->Worker(worker);
    EXPECT_TRUE(found.ok()) << found.status();
    const auto value = cluster_->Metric(found->status(), "baton_prompt_tokens_computed_total");
    return value.value_or(0);
  }

  // That came from the decode worker.
  double Histories() {
    const auto found = cluster_->Worker("p-1");
    EXPECT_TRUE(found.ok()) << found.status();
    return cluster_->Metric(found->status(), "baton_kv_histories_total", "result=\"ok\"").value_or(-1);
  }

  // Two turns: a long prompt and its answer, then both with a new message.
  struct Turns {
    double computed_by_prefill = 0, computed_by_decode = 0;  // In the second one.
    double bytes_per_token = 0;                              // Of KV, by what the first one sent.
    cli::Answer second;
  };
  void TakeTurns(Turns* turns) {
    std::vector<int> prompt(kHistory);
    for (int i = 0; i < kHistory; ++i) prompt[static_cast<size_t>(i)] = 3 + (i * 31 + i / 7) % 256;
    ASSERT_OK_AND_ASSIGN(const cli::Answer first, cluster_->Generate(GreedyRequest(prompt, kAnswer)));
    turns->bytes_per_token = static_cast<double>(first.timeline.kv_bytes()) / (kHistory - 1);
    const std::vector<int>& answer = first.choices.at(0).token_ids;
    ASSERT_EQ(answer.size(), static_cast<size_t>(kAnswer));
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    for (int i = 0; i < kNew; ++i) prompt.push_back(3 + (i * 17 + 5) % 256);
    const double prefill = Computed("p-1"), decode = Computed("d-1");
    ASSERT_OK_AND_ASSIGN(turns->second, cluster_->Generate(GreedyRequest(prompt, 8)));
    turns->computed_by_prefill = Computed("p-1") - prefill;
    turns->computed_by_decode = Computed("d-1") - decode;
    // The same without any cache.
    v1::GenerateRequest fresh = GreedyRequest(prompt, 8);
    fresh.set_cache_salt("another");
    ASSERT_OK_AND_ASSIGN(const cli::Answer want, cluster_->Generate(fresh));
    EXPECT_EQ(turns->second.choices.at(0).token_ids, want.choices.at(0).token_ids);
  }

  std::unique_ptr<LocalCluster> cluster_;
};

TEST_F(ChatTurnsTest, WhereTheHistoryIsOnlyTheNewMessageIsComputed) {
  ASSERT_NO_FATAL_FAILURE(StartCluster("adaptive", "auto"));
  Turns turns;
  ASSERT_NO_FATAL_FAILURE(TakeTurns(&turns));
  EXPECT_EQ(turns.computed_by_prefill, 0);
  EXPECT_GE(turns.computed_by_decode, kNew);
  EXPECT_LE(turns.computed_by_decode, kNew + kBlock);
  EXPECT_EQ(turns.second.timeline.kv_bytes(), 0);
}

// The prefill worker has the first prompt; what decode answered it gets from there.
TEST_F(ChatTurnsTest, APrefillWorkerComputesOnlyTheNewMessage) {
  ASSERT_NO_FATAL_FAILURE(StartCluster("always", "always"));
  Turns turns;
  ASSERT_NO_FATAL_FAILURE(TakeTurns(&turns));
  ASSERT_GT(turns.bytes_per_token, 0);
  EXPECT_EQ(turns.computed_by_decode, 0);
  EXPECT_GE(turns.computed_by_prefill, kNew);
  EXPECT_LE(turns.computed_by_prefill, kNew + kBlock);
  EXPECT_LE(static_cast<double>(turns.second.timeline.kv_bytes()), (kNew + kBlock) * turns.bytes_per_token);
  EXPECT_EQ(Histories(), 1);
  EXPECT_EQ(turns.second.timeline.history_tokens(), (kHistory + kAnswer - 1) / kBlock * kBlock - (kHistory - 1) / kBlock * kBlock);
  EXPECT_EQ(turns.second.usage.cached_tokens(), (kHistory + kAnswer - 1) / kBlock * kBlock);
  EXPECT_TRUE(Eventually([&] { return cluster_->Idle(); }));
}

// Without that it computes the answer again, and sends nothing of it.
TEST_F(ChatTurnsTest, APrefillWorkerSendsOnlyTheNewMessage) {
  ASSERT_NO_FATAL_FAILURE(StartCluster("always", "never"));
  Turns turns;
  ASSERT_NO_FATAL_FAILURE(TakeTurns(&turns));
  ASSERT_GT(turns.bytes_per_token, 0);
  EXPECT_EQ(turns.computed_by_decode, 0);
  EXPECT_EQ(Histories(), 0);
  EXPECT_LE(turns.computed_by_prefill, kAnswer + kNew + kBlock);
  EXPECT_GT(turns.second.timeline.kv_bytes(), 0);
  EXPECT_LE(static_cast<double>(turns.second.timeline.kv_bytes()), (kNew + kBlock) * turns.bytes_per_token);
}

}  // namespace
}  // namespace baton::testing
