// SPDX-License-Identifier: Apache-2.0
// Where the policies send a request, over snapshots as tables; what routers know of caches; who may change its role.
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/admission.h"
#include "router/cached_prefixes.h"
#include "router/route_policy.h"
#include "router/worker_registry.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using testing::IsOk;
using testing::StatusIs;

std::vector<int32_t> Tokens(int count, int first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(CachedPrefixes, CountsWholeBlocksFromTheBeginning) {
  const PromptPrefixes prompt = NamePrefixes("m", "", Tokens(100));
  ASSERT_EQ(prompt.names.size(), 6u);
  const auto cached = CachedPrefixes::Of(std::vector<uint64_t>{prompt.names[0], prompt.names[1], prompt.names[3]});
  EXPECT_EQ(cached->NumCachedTokens(prompt.names, 16), 32);  // What follows a gap cannot be used.
  EXPECT_EQ(cached->NumCachedTokens(prompt.names, 32), 64);  // Of larger blocks only the ends have names.
  EXPECT_EQ(cached->NumCachedTokens(prompt.names, 48), 0);
  EXPECT_EQ(cached->NumCachedTokens(prompt.names, 0), 0);
  EXPECT_EQ(cached->NumCachedTokens({}, 16), 0);
  // Another model, another salt, other tokens: other names.
  for (const PromptPrefixes& other : {NamePrefixes("n", "", Tokens(100)), NamePrefixes("m", "s", Tokens(100)), NamePrefixes("m", "", Tokens(100, 1))}) {
    EXPECT_EQ(cached->NumCachedTokens(other.names, 16), 0);
  }
}

TEST(CachedPrefixes, ChangesAddUpAndOldOnesStay) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 rng(seed);
    std::set<uint64_t> naive;
    auto cached = CachedPrefixes::Of(naive);
    for (int step = 0; step < 100; ++step) {
      std::set<uint64_t> added, removed;
      for (uint64_t i = rng() % 40; i > 0; --i) added.insert(rng() % 1000);
      for (uint64_t i = rng() % 40; i > 0; --i) removed.insert(rng() % 1000);
      for (const uint64_t name : removed) added.erase(name);
      const auto before = cached;
      const size_t size_before = before->size();
      cached = cached->With(added, removed);
      for (const uint64_t name : removed) naive.erase(name);
      naive.insert(added.begin(), added.end());
      ASSERT_EQ(before->size(), size_before) << seed;
      ASSERT_EQ(cached->size(), naive.size()) << seed;
      for (uint64_t name = 0; name < 1000; ++name) ASSERT_EQ(cached->Contains(name), naive.count(name) > 0) << seed << ": " << name;
    }
  }
}

TEST(CachedPrefixes, AreBounded) {
  std::vector<uint64_t> names(CachedPrefixes::kMax + 10);
  std::iota(names.begin(), names.end(), uint64_t{0});
  const auto cached = CachedPrefixes::Of(names);
  EXPECT_EQ(cached->size(), CachedPrefixes::kMax);
  EXPECT_EQ(cached->With(std::vector<uint64_t>{1u << 30}, std::vector<uint64_t>{})->size(), CachedPrefixes::kMax);
  EXPECT_TRUE(cached->With(std::vector<uint64_t>{1u << 30}, std::vector<uint64_t>{0})->Contains(1u << 30));
}

// A worker of a table: its open calls and their tokens here, what others run there, tokens of the prompt that it has cached.
struct Row {
  int open_calls = 0;
  int64_t open_tokens = 0;
  int others = 0;
  int cached = 0;
  std::string model = "m";
};

constexpr int kPromptTokens = 1000;

class PolicyTest : public ::testing::Test {
 protected:
  // Which of the workers are ever chosen in 200 draws.
  std::set<size_t> Chosen(absl::string_view policy_name, internal::WorkerRole role, const std::vector<Row>& rows, bool knows_prompt = true) {
    const PromptPrefixes prompt = NamePrefixes("m", "", Tokens(kPromptTokens));
    std::vector<std::unique_ptr<WorkerInfo>> workers;
    std::vector<RouteCandidate> candidates;
    for (const Row& row : rows) {
      auto worker = std::make_unique<WorkerInfo>();
      worker->ref = {"w-" + std::to_string(workers.size()), 1};
      worker->identity.set_role(role);
      worker->identity.set_model_fingerprint(row.model);
      worker->load.set_block_size(16);
      worker->load.set_running(row.open_calls + row.others);
      if (row.cached > 0) {
        worker->cached = CachedPrefixes::Of(std::vector<uint64_t>(prompt.names.begin(), prompt.names.begin() + row.cached / 16));
      }
      candidates.push_back({.worker = worker.get(), .open_calls = row.open_calls, .open_tokens = row.open_tokens});
      workers.push_back(std::move(worker));
    }
    const auto policy = *CreateRoutePolicy(policy_name);
    const auto view = BuildClusterView({}, {});
    RouteRng rng(1);
    std::set<size_t> chosen;
    for (int i = 0; i < 200; ++i) {
      chosen.insert(policy->Choose({.role = role, .num_tokens = kPromptTokens, .prefixes = knows_prompt ? &prompt : nullptr, .candidates = candidates},
                                   *view, rng));
    }
    return chosen;
  }
};

TEST_F(PolicyTest, PrefixAwarePrefillAddsTheQueueAndWhatIsLeftToCompute) {
  const auto chosen = [&](const std::vector<Row>& rows) { return Chosen("prefix_aware", internal::PREFILL, rows); };
  EXPECT_THAT(chosen({{}, {.cached = 160}}), ElementsAre(1));
  EXPECT_THAT(chosen({{.cached = 160}, {.cached = 800}}), ElementsAre(1));
  EXPECT_THAT(chosen({{.cached = 160}, {}, {.cached = 160}}), ElementsAre(0, 2));
  // 800 cached tokens are worth a queue of 799, and not one of 801.
  EXPECT_THAT(chosen({{}, {.open_calls = 1, .open_tokens = 799, .cached = 800}}), ElementsAre(1));
  EXPECT_THAT(chosen({{}, {.open_calls = 1, .open_tokens = 801, .cached = 800}}), ElementsAre(0));
  // What other routers have there counts as prompts like this one.
  EXPECT_THAT(chosen({{}, {.others = 1, .cached = 800}}), ElementsAre(0));
  // Another model's cache has another text, whatever it is called.
  EXPECT_THAT(chosen({{}, {.cached = 800, .model = "n"}}), ElementsAre(0, 1));
}

TEST_F(PolicyTest, PrefixAwareDecodeLooksAtCachesOfThoseWithAboutAsManySequences) {
  const auto chosen = [&](const std::vector<Row>& rows) { return Chosen("prefix_aware", internal::DECODE, rows); };
  EXPECT_THAT(chosen({{}, {.cached = 16}}), ElementsAre(1));
  EXPECT_THAT(chosen({{}, {.open_calls = 1, .cached = 16}}), ElementsAre(1));
  EXPECT_THAT(chosen({{}, {.open_calls = 2, .cached = 800}}), ElementsAre(0));
  EXPECT_THAT(chosen({{}, {.others = 2, .cached = 800}}), ElementsAre(0));
  EXPECT_THAT(chosen({{.open_calls = 40}, {.open_calls = 50, .cached = 16}}), ElementsAre(1));  // A quarter more.
  EXPECT_THAT(chosen({{.open_calls = 40}, {.open_calls = 51, .cached = 16}}), ElementsAre(0));
  EXPECT_THAT(chosen({{.open_calls = 1, .cached = 160}, {.open_calls = 2, .cached = 160}}), ElementsAre(0));  // Then the load.
}

TEST_F(PolicyTest, WithoutKnowledgePrefixAwareIsLeastLoaded) {
  for (const internal::WorkerRole role : {internal::PREFILL, internal::DECODE}) {
    for (const std::vector<Row>& rows : std::vector<std::vector<Row>>{{{.open_calls = 1, .open_tokens = 10}, {}},
                                                                      {{}, {}, {.others = 1}},
                                                                      {{.open_calls = 2, .open_tokens = 5}, {.open_calls = 1, .open_tokens = 9}}}) {
      EXPECT_EQ(Chosen("prefix_aware", role, rows), Chosen("least_loaded", role, rows));
    }
    // The prompt is not known, or too short for a name.
    EXPECT_THAT(Chosen("prefix_aware", role, {{}, {.cached = 160}}, /*knows_prompt=*/false), ElementsAre(0, 1));
  }
}

TEST_F(PolicyTest, PowerOfTwoTakesTheLesserOfAnyTwo) {
  EXPECT_THAT(Chosen("power_of_two", internal::DECODE, {{.open_calls = 1}}), ElementsAre(0));
  EXPECT_THAT(Chosen("power_of_two", internal::DECODE, {{.open_calls = 1}, {}}), ElementsAre(1));
  // Never the most loaded of three, though not always the least.
  EXPECT_THAT(Chosen("power_of_two", internal::DECODE, {{.open_calls = 1}, {.open_calls = 2}, {}}), UnorderedElementsAre(0, 2));
  EXPECT_THAT(Chosen("power_of_two", internal::PREFILL, {{}, {}, {}}), UnorderedElementsAre(0, 1, 2));
}

TEST(RoutePolicy, AllThatAreNamedExist) {
  const absl::Status unknown = CreateRoutePolicy("best").status();
  for (const char* name : {"prefix_aware", "least_loaded", "power_of_two", "round_robin"}) {
    EXPECT_THAT(CreateRoutePolicy(name).status(), IsOk());
    EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  }
}

class RegisteredTest : public ::testing::Test {
 protected:
  uint64_t Add(const std::string& id, internal::WorkerRole role, bool changes_role = true) {
    internal::WorkerIdentity identity;
    identity.set_id(id);
    identity.set_incarnation(1);
    identity.set_role(role);
    identity.set_address(id + ":1");
    identity.set_model_fingerprint("m");
    identity.set_kv_layout("l");
    identity.set_context_length(4096);
    identity.set_changes_role(changes_role);
    const auto session = registry_.Connect(identity, now_, [this, id](internal::WorkerRole next) { told_[id] = next; });
    EXPECT_THAT(session.status(), IsOk());
    registry_.Report(*session, Load(), now_);
    return *session;
  }
  static internal::WorkerLoad Load() {
    internal::WorkerLoad load;
    load.set_credit_slots(4);
    load.set_block_size(16);
    load.set_credit_blocks(1000);
    return load;
  }
  // Of the only worker, as the next report shows it.
  std::shared_ptr<const CachedPrefixes> CacheAfterReport(uint64_t session) {
    registry_.Report(session, Load(), now_);
    return registry_.View()->workers[0]->cached;
  }

  MonotonicTime now_ = absl::Seconds(100);
  WorkerRegistry registry_{WorkerRegistryOptions{}};
  std::map<std::string, internal::WorkerRole> told_;
};

TEST_F(RegisteredTest, AWorkerIsToldToChangeItsRole) {
  Add("p-1", internal::PREFILL);
  Add("p-2", internal::PREFILL);
  Add("d-1", internal::DECODE);
  EXPECT_THAT(registry_.SetRole("p-2", internal::DECODE), IsOk());
  EXPECT_EQ(told_["p-2"], internal::DECODE);
  EXPECT_THAT(registry_.Drain("p-2"), IsOk());
  EXPECT_EQ(told_["p-2"], internal::ROLE_UNSPECIFIED);
  // The other one counts on it no more, before it has even left.
  EXPECT_THAT(registry_.SetRole("p-1", internal::DECODE), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("p-1 is needed")));
  EXPECT_THAT(registry_.SetRole("p-1", internal::PREFILL), IsOk());  // It is one.
  EXPECT_EQ(told_.count("p-1"), 0u);
}

TEST_F(RegisteredTest, AChangeOfRoleThatCannotBeIsRefused) {
  const uint64_t p1 = Add("p-1", internal::PREFILL);
  Add("d-1", internal::DECODE);
  const auto refusal = [&](const std::string& id, internal::WorkerRole role) { return registry_.SetRole(id, role); };
  EXPECT_THAT(refusal("p-1", internal::ROLE_UNSPECIFIED), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("role")));
  EXPECT_THAT(refusal("p-7", internal::DECODE), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no worker p-7 is registered here; p-1, d-1")));
  EXPECT_THAT(refusal("p-1", internal::DECODE), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("p-1 is needed as it is; without it: no prefill worker")));
  EXPECT_THAT(refusal("d-1", internal::PREFILL), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("without it: no decode worker")));
  const uint64_t p2 = Add("p-2", internal::PREFILL, /*changes_role=*/false);
  EXPECT_THAT(refusal("p-2", internal::DECODE), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot change its role")));
  internal::WorkerLoad draining = Load();
  draining.set_draining(true);
  registry_.Report(p1, draining, now_);
  EXPECT_THAT(refusal("p-1", internal::DECODE), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("p-1 is draining")));
  EXPECT_TRUE(told_.empty());
  // A cluster that serves nobody loses nothing.
  registry_.Disconnect(p1);
  registry_.Disconnect(p2);
  Add("d-2", internal::DECODE);
  EXPECT_THAT(refusal("d-2", internal::PREFILL), IsOk());
}

TEST_F(RegisteredTest, WhatIsCachedFollowsSnapshotAndDeltas) {
  const uint64_t session = Add("d-1", internal::DECODE);
  EXPECT_EQ(CacheAfterReport(session), nullptr);
  internal::CacheUpdate update;
  update.set_sequence(5);
  update.add_added(1);
  registry_.ReportCache(session, update);  // Of a snapshot that nobody has seen.
  EXPECT_EQ(CacheAfterReport(session), nullptr);
  update.set_snapshot(true);
  registry_.ReportCache(session, update);
  ASSERT_NE(CacheAfterReport(session), nullptr);
  EXPECT_TRUE(CacheAfterReport(session)->Contains(1));
  const auto old_view = registry_.View();
  internal::CacheUpdate delta;
  delta.set_sequence(6);
  delta.add_added(2);
  delta.add_removed(1);
  registry_.ReportCache(session, delta);
  EXPECT_TRUE(CacheAfterReport(session)->Contains(2));
  EXPECT_FALSE(CacheAfterReport(session)->Contains(1));
  EXPECT_TRUE(old_view->workers[0]->cached->Contains(1));  // A snapshot stays as it was.
  delta.set_sequence(8);  // One was missed.
  registry_.ReportCache(session, delta);
  EXPECT_EQ(CacheAfterReport(session), nullptr);
  delta.set_sequence(9);
  registry_.ReportCache(session, delta);
  EXPECT_EQ(CacheAfterReport(session), nullptr);
  registry_.ReportCache(session, update);
  EXPECT_TRUE(CacheAfterReport(session)->Contains(1));
}

}  // namespace
}  // namespace baton
