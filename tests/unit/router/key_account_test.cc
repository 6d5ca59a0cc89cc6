// SPDX-License-Identifier: Apache-2.0
#include "router/key_account.h"

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/api_keys.h"
#include "router/status_details.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton {
namespace {

using testing::IsOk;
using testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kOver = absl::StatusCode::kResourceExhausted;

class KeyAccountTest : public ::testing::Test {
 protected:
  std::unique_ptr<KeyAccount> Make(const KeyLimits& limits) { return std::make_unique<KeyAccount>("alice", limits, &clock_); }

  ManualClock clock_;
};

TEST_F(KeyAccountTest, WithoutLimitsEverythingGoes) {
  const auto account = Make({});
  for (int i = 0; i < 10000; ++i) ASSERT_THAT(account->Begin(), IsOk());
  EXPECT_THAT(account->Extend(1000000), IsOk());
  EXPECT_THAT(account->TakePrompt(1000000000), IsOk());
  EXPECT_THAT(account->TakePrompt(1000000000), IsOk());
  EXPECT_EQ(*account->Priority(-7), -7);
}

TEST_F(KeyAccountTest, OpenRequestsAreBounded) {
  const auto account = Make({.max_concurrent = 2});
  ASSERT_THAT(account->Begin(), IsOk());
  ASSERT_THAT(account->Begin(), IsOk());
  const absl::Status refused = account->Begin();
  EXPECT_THAT(refused, StatusIs(kOver, HasSubstr("API key alice: 2 requests are open, max-concurrent is 2")));
  EXPECT_EQ(ErrorCode(refused), "rate_limit_exceeded");
  EXPECT_NEAR(absl::ToDoubleSeconds(*RetryAfter(refused)), 0.5, 0.002);  // Of two that take a second each one ends in half of it.
  account->End(1, absl::Seconds(11));
  EXPECT_THAT(account->Begin(), IsOk());
  EXPECT_NEAR(absl::ToDoubleSeconds(*RetryAfter(account->Begin())), 1.5, 0.002);  // They take longer than was thought.
}

TEST_F(KeyAccountTest, ABatchIsAsManyRequestsAsPrompts) {
  const auto account = Make({.max_concurrent = 3, .requests_per_minute = 4});
  ASSERT_THAT(account->Begin(), IsOk());
  EXPECT_THAT(account->Extend(3), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("API key alice: a batch of 4 prompts is over max-concurrent, which is 3")));
  ASSERT_THAT(account->Extend(2), IsOk());
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("3 requests are open")));
  account->End(3, absl::Seconds(1));
  // What is over the minute's is owed: nothing is too large for ever.
  ASSERT_THAT(account->Begin(), IsOk());
  ASSERT_THAT(account->Extend(2), IsOk());
  account->End(3, absl::Seconds(1));
  EXPECT_NEAR(absl::ToDoubleSeconds(*RetryAfter(account->Begin())), 45, 0.002);  // From -2 to 1 at 4 a minute.
}

TEST_F(KeyAccountTest, RequestsPerMinuteRefillAllTheTime) {
  const auto account = Make({.requests_per_minute = 60});
  for (int i = 0; i < 60; ++i) {
    ASSERT_THAT(account->Begin(), IsOk()) << i;
    account->End(1, absl::ZeroDuration());
  }
  const absl::Status refused = account->Begin();
  EXPECT_THAT(refused, StatusIs(kOver, HasSubstr("API key alice: its requests-per-minute, 60, are used up")));
  EXPECT_NEAR(absl::ToDoubleSeconds(*RetryAfter(refused)), 1, 0.002);
  clock_.Advance(absl::Milliseconds(999));
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("used up")));
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(account->Begin(), IsOk());  // After as long as was said.
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("used up")));
  clock_.Advance(absl::Hours(5));
  for (int i = 0; i < 60; ++i) ASSERT_THAT(account->Begin(), IsOk()) << i;  // A minute's worth is saved up, no more.
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("used up")));
}

TEST_F(KeyAccountTest, TokensMayBeOwed) {
  const auto account = Make({.tokens_per_minute = 600});
  ASSERT_THAT(account->Begin(), IsOk());
  ASSERT_THAT(account->TakePrompt(1000), IsOk());
  account->TakeCompletion(200);
  const absl::Status refused = account->TakePrompt(1);
  EXPECT_THAT(refused, StatusIs(kOver, HasSubstr("API key alice: its tokens-per-minute, 600, are used up")));
  EXPECT_EQ(ErrorCode(refused), "rate_limit_exceeded");
  EXPECT_NEAR(absl::ToDoubleSeconds(*RetryAfter(refused)), 60.1, 0.01);  // From -600 to 1 at 10 a second.
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("tokens-per-minute")));  // Before its prompt is looked at.
  clock_.Advance(absl::Seconds(61));
  EXPECT_THAT(account->Begin(), IsOk());
  EXPECT_THAT(account->TakePrompt(5), IsOk());
}

TEST_F(KeyAccountTest, NewLimitsKeepWhatWasUsed) {
  const auto account = Make({.max_concurrent = 1, .requests_per_minute = 10});
  ASSERT_THAT(account->Begin(), IsOk());
  account->SetLimits({.max_concurrent = 2, .requests_per_minute = 2});
  ASSERT_THAT(account->Begin(), IsOk());
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("requests-per-minute, 2,")));  // One was used before.
  account->SetLimits({.max_concurrent = 1});
  EXPECT_THAT(account->Begin(), StatusIs(kOver, HasSubstr("2 requests are open, max-concurrent is 1")));
  account->SetLimits({});
  EXPECT_THAT(account->Begin(), IsOk());
}

TEST_F(KeyAccountTest, PriorityIsADefaultAndABound) {
  const auto account = Make({.priority = 5});
  EXPECT_EQ(*account->Priority(0), 5);
  EXPECT_EQ(*account->Priority(5), 5);
  EXPECT_EQ(*account->Priority(-3), -3);
  const absl::Status refused = account->Priority(6).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("priority 6 is over 5, the most that API key alice may ask for")));
  EXPECT_EQ(*Param(refused), "priority");
}

TEST_F(KeyAccountTest, RefusalsAreCountedFromZeroOn) {
  MetricRegistry metrics;
  const auto account = Make({.max_concurrent = 1, .tokens_per_minute = 10});
  account->ExportTo(&metrics);
  const auto count = [&](const char* limit) {
    return metrics.GetCounter("baton_key_requests_refused_total", "Requests over a limit of their API key.", {{"key", "alice"}, {"limit", limit}})->value();
  };
  EXPECT_THAT(metrics.RenderPrometheus(), AllOf(HasSubstr(R"(baton_key_requests_refused_total{key="alice",limit="max-concurrent"} 0)"),
                                                HasSubstr(R"(limit="tokens-per-minute"} 0)"), ::testing::Not(HasSubstr("requests-per-minute"))));
  ASSERT_THAT(account->Begin(), IsOk());
  EXPECT_FALSE(account->Begin().ok());
  EXPECT_THAT(account->TakePrompt(10), IsOk());
  EXPECT_FALSE(account->TakePrompt(1).ok());
  EXPECT_EQ(count("max-concurrent"), 1u);
  EXPECT_EQ(count("tokens-per-minute"), 1u);
}

TEST_F(KeyAccountTest, AUseEndsWithItsLastHolder) {
  const auto account = std::make_shared<KeyAccount>("alice", KeyLimits{.max_concurrent = 2}, &clock_);
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<KeyUse> use, KeyUse::Begin(account, &clock_));
  ASSERT_THAT(use->Extend(1), IsOk());
  std::shared_ptr<KeyUse> other = use;
  EXPECT_FALSE(KeyUse::Begin(account, &clock_).ok());
  use = nullptr;
  EXPECT_FALSE(KeyUse::Begin(account, &clock_).ok());
  other->EndOne();
  EXPECT_TRUE(KeyUse::Begin(account, &clock_).ok());
  other = nullptr;
  ASSERT_OK_AND_ASSIGN(use, KeyUse::Begin(account, &clock_));
  ASSERT_OK_AND_ASSIGN(other, KeyUse::Begin(account, &clock_));
}

TEST(KeyLimitsTest, TheFileSaysThem) {
  const std::string key = " 0123456789abcdef ";
  ASSERT_OK_AND_ASSIGN(const auto keys, ParseApiKeys("a" + key + "max-concurrent=8 requests-per-minute=60 tokens-per-minute=100000 weight=4 priority=-2\n"
                                                     "b" + std::string(" fedcba9876543210 admin weight=2\n")));
  EXPECT_EQ(keys[0].role, KeyRole::kClient);
  EXPECT_EQ(keys[0].limits.max_concurrent, 8);
  EXPECT_EQ(keys[0].limits.requests_per_minute, 60);
  EXPECT_EQ(keys[0].limits.tokens_per_minute, 100000);
  EXPECT_EQ(keys[0].limits.weight, 4);
  EXPECT_EQ(keys[0].limits.priority, -2);
  EXPECT_EQ(keys[1].role, KeyRole::kAdmin);
  EXPECT_EQ(keys[1].limits.weight, 2);
  EXPECT_EQ(keys[1].limits.priority, std::nullopt);
  const std::pair<const char*, const char*> bad[] = {
      {"max-concurrent=0", "line 1: max-concurrent \"0\" is not a number from 1 to 1000000000"},
      {"weight=1001", "line 1: weight \"1001\" is not a number from 1 to 1000"},
      {"priority=1e3", "line 1: priority \"1e3\" is not a number from -1000000 to 1000000"},
      {"requests-per-minute=", "line 1: requests-per-minute \"\" is not a number"},
      {"speed=9", "line 1: word 3 is none of the limits max-concurrent, requests-per-minute,"},
      {"weight=1 weight=2", "line 1: weight is there before"},
      {"weight=1 client", "line 1: word 4 is not LIMIT=VALUE"},
      {"worker weight=1", "line 1: a worker's key has no limits"}};
  for (const auto& [rest, message] : bad) {
    EXPECT_THAT(ParseApiKeys("a" + key + rest), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << rest;
  }
}

TEST(KeyLimitsTest, AChangedFileChangesLimitsAndKeepsTheAccount) {
  const std::string path = testing::WriteTempFile("keys", "alice 0123456789abcdef max-concurrent=1\n");
  ManualClock clock;
  ASSERT_OK_AND_ASSIGN(const auto keys, ApiKeys::Load(path, &clock));
  ASSERT_OK_AND_ASSIGN(const auto account, keys->Find("Bearer 0123456789abcdef", KeyRole::kClient));
  ASSERT_THAT(account->Begin(), IsOk());
  std::ofstream(path, std::ios::trunc) << "alice fedcba9876543210 max-concurrent=2 weight=3\n";  // Another key, the same holder.
  keys->Reload();
  ASSERT_OK_AND_ASSIGN(const auto again, keys->Find("Bearer fedcba9876543210", KeyRole::kClient));
  EXPECT_EQ(again, account);
  EXPECT_EQ(again->limits().weight, 3);
  EXPECT_THAT(again->Begin(), IsOk());
  EXPECT_FALSE(again->Begin().ok());
  std::ofstream(path, std::ios::trunc) << "bob fedcba9876543210\n";
  keys->Reload();
  account->End(1, absl::Seconds(1));  // What was open when it was revoked ends as ever.
}

}  // namespace
}  // namespace baton
