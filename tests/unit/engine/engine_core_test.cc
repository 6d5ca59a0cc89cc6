// SPDX-License-Identifier: Apache-2.0
#include "common/engine/engine_core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/test_worker.h"

namespace baton {
namespace {

using ::baton::testing::Disaggregate;
using ::baton::testing::Heard;
using ::baton::testing::IsOk;
using ::baton::testing::kBlockSize;
using ::baton::testing::MakeSpec;
using ::baton::testing::RandomModel;
using ::baton::testing::RandomTokens;
using ::baton::testing::RunAlone;
using ::baton::testing::StatusIs;
using ::baton::testing::TestWorker;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EngineCore, TheTestModelDependsOnItsWholeContext) {
  auto prompt = RandomTokens(80, 1);
  const auto before = RunAlone(MakeSpec(prompt, 24));
  prompt[0] = prompt[0] == 3 ? 4 : 3;
  EXPECT_NE(RunAlone(MakeSpec(prompt, 24)), before);
}

TEST(EngineCore, WarmEqualsColdAlsoAfterEviction) {
  TestWorker worker(14, {});
  const auto prefix = RandomTokens(5 * kBlockSize, 3);
  for (int round = 0; round < 2; ++round) {
    for (int suffix : {1, 7, 15, 16, 17, 31, 32}) {
      auto prompt = prefix;
      const auto tail = RandomTokens(suffix, 40 + suffix);
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      const SequenceSpec spec = MakeSpec(prompt, 12);
      Heard heard;
      const uint64_t cached_before = worker.core().stats().prompt_tokens_cached;
      ASSERT_THAT(worker.Generate(static_cast<SequenceId>(round * 100 + suffix), spec, &heard), IsOk());
      worker.RunUntilIdle();
      EXPECT_EQ(heard.tokens, RunAlone(spec)) << suffix;
      const bool cold = suffix == 1;  // The first of a round: the other request took all blocks.
      EXPECT_EQ(worker.core().stats().prompt_tokens_cached > cached_before, !cold);
    }
    Heard other;  // Needs nearly the whole pool.
    ASSERT_THAT(worker.Generate(999 + round, MakeSpec(RandomTokens(13 * kBlockSize, 8 + round), 3), &other), IsOk());
    worker.RunUntilIdle();
  }
}

TEST(EngineCore, PreemptedSequencesGoBeforeNewLandings) {
  TestWorker worker(8, {});
  Heard heard[3];
  for (int i = 0; i < 2; ++i) ASSERT_THAT(worker.Generate(i, MakeSpec(RandomTokens(50, i), 60), &heard[i]), IsOk());
  while (worker.core().stats().preemptions == 0) ASSERT_TRUE(worker.core().Step([] {}));
  EXPECT_THAT(worker.core().ReserveLanding(2, MakeSpec({5}, 1), heard[2].Sink()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1 preempted sequences")));
  worker.RunUntilIdle();
  EXPECT_EQ(heard[0].tokens.at(0).size(), 60u);
  EXPECT_EQ(heard[1].tokens.at(0).size(), 60u);
}

// n choices share the prompt's full blocks and draw as if each were alone.
TEST(EngineCore, ChoicesForkOneLanding) {
  for (int n : {kBlockSize * 2, kBlockSize * 2 + 1, 40}) {
    SequenceSpec spec = MakeSpec(RandomTokens(n, n), 40, {.temperature = 1.0, .seed = 9});
    spec.num_choices = 4;
    TestWorker prefill(16, {.max_running = 0}), decode(32, {});
    Heard heard;
    ASSERT_THAT(Disaggregate(prefill, decode, 1, spec, &heard), IsOk());
    const int full = (n - 1) / kBlockSize;
    EXPECT_EQ(decode.core().stats().blocks.used, full + 4);
    decode.RunUntilIdle();
    ASSERT_EQ(heard.tokens.size(), 4u);
    EXPECT_NE(heard.tokens[0], heard.tokens[1]);
    for (int choice = 0; choice < 4; ++choice) {
      SequenceSpec single = spec;
      single.num_choices = 1;
      single.first_choice = choice;
      EXPECT_EQ(RunAlone(single).at(choice), heard.tokens[choice]) << choice;
    }
    EXPECT_TRUE(decode.AtBaseline());
  }
}

TEST(EngineCore, ForkedChoicesSurvivePreemption) {
  SequenceSpec spec = MakeSpec(RandomTokens(40, 2), 80, {.temperature = 1.0, .seed = 1});
  spec.num_choices = 3;
  TestWorker worker(12, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, spec, &heard), IsOk());
  worker.RunUntilIdle();
  EXPECT_GT(worker.core().stats().preemptions, 0u);
  EXPECT_EQ(heard.tokens, RunAlone(spec));
  EXPECT_TRUE(worker.AtBaseline());
}

// A25, A26, B28.
TEST(EngineCore, FinishReasons) {
  const auto prompt = RandomTokens(20, 4);
  const auto free = RunAlone(MakeSpec(prompt, 40)).at(0);
  for (int max_tokens : {1, 2, 3, kBlockSize - 1, kBlockSize, kBlockSize + 1, 2 * kBlockSize}) {
    TestWorker worker(16, {});
    Heard heard;
    ASSERT_THAT(worker.Generate(1, MakeSpec(prompt, max_tokens), &heard), IsOk());
    worker.RunUntilIdle();
    EXPECT_EQ(heard.tokens[0], std::vector<int32_t>(free.begin(), free.begin() + max_tokens));
    EXPECT_EQ(heard.finish[0], FinishReason::kLength);
    EXPECT_EQ(heard.events.back().index, max_tokens - 1);
  }
  // The stop token is the last event's token.
  const int32_t stop = free[5];
  const size_t first = static_cast<size_t>(std::ranges::find(free, stop) - free.begin());
  TestWorker worker(16, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, MakeSpec(prompt, 40, {.temperature = 0, .stop_token_ids = {stop}}), &heard), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(heard.tokens[0].size(), first + 1);
  EXPECT_EQ(heard.finish[0], FinishReason::kStop);
  EXPECT_EQ(heard.events.back().stop_token_id, stop);
  EXPECT_EQ(heard.events.front().stop_token_id, first == 0 ? stop : -1);
}

TEST(EngineCore, GenerationEndsWithTheContext) {
  TestWorker worker(16, {.context_length = 50});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, MakeSpec(RandomTokens(40, 4), 1000000), &heard), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(heard.tokens[0].size(), 10u);
  EXPECT_EQ(heard.finish[0], FinishReason::kLength);
  // The pool bounds it, too.
  TestWorker small(3, {});
  EXPECT_EQ(small.core().context_length(), 48);
  Heard whole;
  ASSERT_THAT(small.Generate(1, MakeSpec(RandomTokens(40, 4), 1000), &whole), IsOk());
  small.RunUntilIdle();
  EXPECT_EQ(whole.tokens[0].size(), 8u);
}

// One recovery path: prompt and what was emitted go through prefill again, and the rest comes out.
TEST(EngineCore, RecoveryGoesOnWhereItStopped) {
  for (const SamplingParams& sampling :
       {SamplingParams{.temperature = 0, .repetition_penalty = 1.3},
        SamplingParams{.seed = 3, .presence_penalty = 1, .frequency_penalty = 0.5, .min_tokens = 12},
        SamplingParams{.temperature = 0.7, .top_k = 9, .top_p = 0.8, .seed = 1}}) {
    SequenceSpec spec = MakeSpec(RandomTokens(30, 5), 30, sampling);
    spec.sampling.stop_token_ids = {50, 60, 70};
    const auto all = RunAlone(spec).at(0);
    for (size_t emitted : {size_t{1}, size_t{7}, size_t{16}}) {
      if (emitted >= all.size()) continue;
      SequenceSpec rest = spec;
      rest.tokens.insert(rest.tokens.end(), all.begin(), all.begin() + emitted);
      TestWorker prefill(16, {.max_running = 0}), decode(16, {});
      Heard heard;
      ASSERT_THAT(Disaggregate(prefill, decode, 1, rest, &heard), IsOk());
      decode.RunUntilIdle();
      EXPECT_EQ(heard.tokens[0], std::vector<int32_t>(all.begin() + emitted, all.end()));
      EXPECT_EQ(heard.events.front().index, static_cast<int>(emitted));
    }
  }
}

// B35: what comes with the tokens.
TEST(EngineCore, Logprobs) {
  TestWorker worker(16, {});
  Heard heard;
  ASSERT_THAT(worker.Generate(1, MakeSpec(RandomTokens(9, 4), 5, {.temperature = 0, .num_logprobs = 4}), &heard), IsOk());
  worker.RunUntilIdle();
  for (const TokenEvent& event : heard.events) {
    ASSERT_EQ(event.top.size(), 4u);
    EXPECT_EQ(event.top[0].token_id, event.token_id);
    EXPECT_EQ(event.top[0].logprob, event.logprob);
    EXPECT_LE(event.logprob, 0);
  }
}

// Wrong KV is one sequence's failure, with an error and no text.
TEST(EngineCore, LogitsThatAreNotFiniteFailTheirSequenceAlone) {
  TestWorker worker(32, {});
  const SequenceSpec spec = MakeSpec(RandomTokens(30, 5), 20);
  Heard good, bad;
  ASSERT_THAT(worker.Generate(1, spec, &good), IsOk());
  auto landing = worker.core().ReserveLanding(2, MakeSpec(RandomTokens(30, 6), 20), bad.Sink());
  ASSERT_THAT(landing, IsOk());
  const std::vector<float> poison(worker.pool().layout().block_layer_bytes() / sizeof(float), std::nanf(""));
  const auto bytes = std::as_bytes(std::span(poison));
  std::ranges::transform(bytes, worker.pool().Cell(1, landing->blocks[0]).begin(),
                         [](std::byte b) { return static_cast<uint8_t>(b); });
  worker.core().Landed(2);
  worker.RunUntilIdle();
  ASSERT_TRUE(bad.failed.has_value());
  EXPECT_THAT(*bad.failed, StatusIs(absl::StatusCode::kInternal, HasSubstr("position 30")));
  EXPECT_TRUE(bad.events.empty());
  EXPECT_EQ(good.tokens, RunAlone(spec));
  EXPECT_TRUE(worker.AtBaseline());
  // Nor does it poison the cache.
  Heard again;
  ASSERT_THAT(worker.Generate(3, MakeSpec(RandomTokens(30, 6), 20), &again), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(again.tokens, RunAlone(MakeSpec(RandomTokens(30, 6), 20)));
}

// A32. What a transfer that broke had written is found by nobody.
TEST(EngineCore, ABrokenTransferLeavesNothingInTheCache) {
  for (const bool quarantined : {false, true}) {
    TestWorker worker(32, {});
    auto prompt = RandomTokens(5 * kBlockSize + 3, 7);
    Heard broken;
    auto landing = worker.core().ReserveLanding(1, MakeSpec(prompt, 8), broken.Sink());
    ASSERT_THAT(landing, IsOk());
    for (size_t i = 0; i < landing->blocks.size() / 2; ++i) {
      for (int layer = 0; layer < worker.pool().layout().num_layers; ++layer) {
        std::ranges::fill(worker.pool().Cell(layer, landing->blocks[i]), uint8_t{0x3c});
      }
    }
    if (quarantined) {
      worker.core().ReleaseQuarantined(worker.core().CancelQuarantined(1));
    } else {
      worker.core().Cancel(1);
    }
    EXPECT_TRUE(worker.AtBaseline());
    for (SequenceId id : {2, 3}) {
      Heard heard;
      ASSERT_THAT(worker.Generate(id, MakeSpec(prompt, 8), &heard), IsOk());
      worker.RunUntilIdle();
      EXPECT_EQ(heard.tokens, RunAlone(MakeSpec(prompt, 8))) << id;
      EXPECT_EQ(worker.core().stats().prompt_tokens_cached, id == 2 ? 0u : uint64_t{5 * kBlockSize});
      const auto more = RandomTokens(20, 8);
      prompt.insert(prompt.end(), more.begin(), more.end());
    }
  }
}

// Every layer of every token is reported once, in order of the tokens within a layer, and not before it is there (which
// Disaggregate would show). The last layer by panels: what is reported when all is computed is no more than one of them.
TEST(EngineCore, ProgressNamesEachLayerOfEachTokenOnce) {
  TestWorker worker(16, {.max_step_rows = 24, .max_running = 0, .panel_rows = 5});
  const auto prompt = RandomTokens(70, 3);
  for (int first_token : {0, 16, 32, 69}) {
    Heard heard;
    ASSERT_THAT(worker.core().AddPrefill(first_token, MakeSpec(prompt, 1), first_token, heard.Sink()), IsOk());
    worker.RunUntilIdle();
    EXPECT_EQ(heard.num_prefilled, 1);
    std::map<std::pair<int, int>, int> times;
    for (const PrefillProgress& p : heard.progress) {
      if (p.layer_begin == 1) EXPECT_LE(p.token_end - p.token_begin, 5);
      for (int layer = p.layer_begin; layer < p.layer_end; ++layer) {
        for (int t = p.token_begin; t < p.token_end; ++t) ++times[{layer, t}];
      }
    }
    EXPECT_EQ(times.size(), static_cast<size_t>(2 * (69 - first_token)));
    for (const auto& [where, n] : times) EXPECT_EQ(n, 1);
    EXPECT_EQ(worker.core().NumCachedTokensOf(first_token), first_token == 0 ? 0 : 64);
    EXPECT_EQ(worker.core().BlocksOf(first_token).size(), 5u);
    worker.core().Finish(first_token);
    EXPECT_TRUE(worker.AtBaseline());
  }
}

TEST(EngineCore, SendersKeepBlocksOverTheEndOfTheirSequence) {
  TestWorker worker(8, {.max_running = 0});
  Heard heard;
  ASSERT_THAT(worker.core().AddPrefill(1, MakeSpec(RandomTokens(40, 3), 1), 0, heard.Sink()), IsOk());
  worker.RunUntilIdle();
  const std::vector<BlockId> blocks(worker.core().BlocksOf(1).begin(), worker.core().BlocksOf(1).end());
  worker.core().RetainBlocks(blocks);
  worker.core().Finish(1);
  EXPECT_EQ(worker.core().stats().blocks.used, 3);
  worker.core().ReleaseBlocks(blocks);
  EXPECT_TRUE(worker.AtBaseline());
}

// A20: a pool just above two prompts serves many that share a prefix.
TEST(EngineCore, ManyPrefillsThroughASmallPool) {
  TestWorker worker(13, {.max_step_rows = 48, .max_running = 0});
  const auto prefix = RandomTokens(3 * kBlockSize, 1);
  std::vector<Heard> heard(64);
  std::set<int> finished;
  for (int i = 0; i < 64; ++i) {
    auto prompt = prefix;
    const auto tail = RandomTokens(40, 10 + i);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    SequenceSink sink = heard[i].Sink();
    sink.on_prefilled = [&, i](absl::Status) {
      finished.insert(i);
      worker.core().Finish(i);
    };
    ASSERT_THAT(worker.core().AddPrefill(i, MakeSpec(prompt, 1), 0, std::move(sink)), IsOk());
  }
  worker.RunUntilIdle();
  EXPECT_EQ(finished.size(), 64u);
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineCore, RefusalsNameWhatIsWrong) {
  TestWorker worker(8, {.max_waiting = 2, .context_length = 100});
  Heard heard;
  const auto refuse = [&](SequenceSpec spec) { return worker.core().ReserveLanding(7, std::move(spec), heard.Sink()); };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refuse(MakeSpec({}, 1)), StatusIs(kInvalid, HasSubstr("tokens is empty")));
  EXPECT_THAT(refuse(MakeSpec({5, 320}, 1)), StatusIs(kInvalid, AllOf(HasSubstr("tokens[1] is 320"), HasSubstr("319"))));
  EXPECT_THAT(refuse(MakeSpec({-1}, 1)), StatusIs(kInvalid, HasSubstr("-1")));
  EXPECT_THAT(refuse(MakeSpec(RandomTokens(100, 1), 1)),
              StatusIs(kInvalid, AllOf(HasSubstr("100 tokens"), HasSubstr("context of 100"), HasSubstr("99"))));
  EXPECT_THAT(refuse(MakeSpec({5}, 0)), StatusIs(kInvalid, HasSubstr("max_tokens is 0")));
  EXPECT_THAT(refuse(MakeSpec({5}, 4, {.top_p = 7})), StatusIs(kInvalid, HasSubstr("top_p is 7")));
  SequenceSpec spec = MakeSpec({5, 6, 7}, 2);
  spec.num_prompt_tokens = 1;
  EXPECT_THAT(refuse(spec), StatusIs(kInvalid, HasSubstr("2 tokens have been generated already")));
  spec.num_prompt_tokens = 4;
  EXPECT_THAT(refuse(spec), StatusIs(kInvalid, AllOf(HasSubstr("num_prompt_tokens is 4"), HasSubstr("1 to 3"))));
  spec.num_prompt_tokens = 3;
  spec.num_choices = 129;
  EXPECT_THAT(refuse(spec), StatusIs(kInvalid, AllOf(HasSubstr("num_choices is 129"), HasSubstr("128"))));
  spec.num_choices = 20;
  EXPECT_THAT(refuse(spec), StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("20"), HasSubstr("8"))));
  EXPECT_THAT(worker.core().AddPrefill(7, MakeSpec({5, 6}, 1), 2, heard.Sink()),
              StatusIs(kInvalid, AllOf(HasSubstr("first_token is 2"), HasSubstr("0 to 1"))));
  EXPECT_THAT(worker.core().PrefillLocally(99), StatusIs(absl::StatusCode::kNotFound, HasSubstr("99")));
  EXPECT_TRUE(worker.AtBaseline());

  ASSERT_THAT(worker.core().ReserveLanding(1, MakeSpec(RandomTokens(90, 1), 4), heard.Sink()), IsOk());
  EXPECT_THAT(worker.core().ReserveLanding(1, MakeSpec({5}, 4), heard.Sink()), StatusIs(kInvalid, HasSubstr("in use")));
  EXPECT_THAT(refuse(MakeSpec(RandomTokens(60, 2), 4)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("4 needed, 2 free, 0 cached")));
  ASSERT_THAT(worker.core().ReserveLanding(2, MakeSpec({5}, 4), heard.Sink()), IsOk());
  EXPECT_THAT(refuse(MakeSpec({5}, 4)), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("max_waiting is 2")));
  TestWorker prefill_only(8, {.max_running = 0});
  EXPECT_THAT(prefill_only.core().ReserveLanding(1, MakeSpec({5}, 4), heard.Sink()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("only prefills")));
}

// By the names that routers give to the prompt's beginnings.
TEST(EngineCore, NamesWhatItsPrefixCacheHolds) {
  TestWorker worker(16, {});
  EXPECT_TRUE(worker.core().CachedPrefixes(16).empty());
  SequenceSpec spec = MakeSpec(RandomTokens(3 * kBlockSize + 5, 1), 1);
  spec.cache_key.cache_salt = "s";
  std::set<uint64_t> expected;
  for (const Hash128& hash : HashChain(spec.cache_key, spec.tokens)) expected.insert(hash.low);
  ASSERT_EQ(expected.size(), 3u);
  Heard heard;
  ASSERT_THAT(worker.Generate(1, spec, &heard), IsOk());
  worker.RunUntilIdle();
  const std::vector<uint64_t> cached = worker.core().CachedPrefixes(16);
  EXPECT_EQ(std::set<uint64_t>(cached.begin(), cached.end()), expected);
  EXPECT_TRUE(worker.core().CachedPrefixes(0).empty());
  worker.core().ClearPrefixCache();
  EXPECT_TRUE(worker.core().CachedPrefixes(16).empty());
}

// The beginning of a prompt that another worker brings: three blocks of which one is cached here already.
TEST(EngineCore, APrefixThatIsBroughtIsFound) {
  TestWorker other(16, {}), worker(4, {.max_running = 0});
  EngineCore& core = worker.core();
  const auto prompt = RandomTokens(3 * kBlockSize + 5, 9);
  const std::span<const int32_t> history(prompt.data(), 3 * kBlockSize);
  const SequenceSpec spec = MakeSpec(prompt, 1);
  Heard first, whole;
  ASSERT_THAT(other.core().AddPrefill(1, spec, 0, whole.Sink()), IsOk());
  other.RunUntilIdle();
  ASSERT_THAT(core.AddPrefill(1, MakeSpec({prompt.begin(), prompt.begin() + kBlockSize + 1}, 1), 0, first.Sink()), IsOk());
  worker.RunUntilIdle();
  core.Finish(1);
  EXPECT_EQ(core.NumCached(spec.cache_key, history), kBlockSize);
  EXPECT_EQ(core.NumCached({"another", "", ""}, history), 0);

  ASSERT_OK_AND_ASSIGN(const Landing landing, core.ReservePrefix(spec.cache_key, history));
  EXPECT_EQ(landing.num_cached_tokens, kBlockSize);
  EXPECT_EQ(landing.num_tokens, 3 * kBlockSize);
  ASSERT_EQ(landing.blocks.size(), 3u);
  EXPECT_EQ(core.stats().blocks.used, 3);
  // All or nothing, and nothing is kept of it.
  EXPECT_THAT(core.ReservePrefix({"another", "", ""}, history).status(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("blocks")));
  EXPECT_EQ(core.stats().blocks.used, 3);
  EXPECT_EQ(core.NumCached(spec.cache_key, history), kBlockSize);  // Not before it is there.
  const std::span<const BlockId> from = other.core().BlocksOf(1);
  std::vector<uint8_t> bytes(worker.pool().layout().block_layer_bytes());
  for (int layer = 0; layer < worker.pool().layout().num_layers; ++layer) {
    for (size_t i = 1; i < 3; ++i) {
      other.pool().ReadTokens(layer, from[i], 0, kBlockSize, bytes);
      worker.pool().WriteTokens(layer, landing.blocks[i], 0, kBlockSize, bytes);
    }
  }
  core.CachePrefix(spec.cache_key, history, landing);
  core.ReleaseBlocks(landing.blocks);
  EXPECT_TRUE(worker.AtBaseline());
  EXPECT_EQ(core.NumCached(spec.cache_key, history), 3 * kBlockSize);

  Heard rest;
  const uint64_t computed = core.stats().prompt_tokens_computed;
  ASSERT_THAT(core.AddPrefill(2, spec, 0, rest.Sink()), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(core.stats().prompt_tokens_computed - computed, 4u);
  // To the bit what the other one has.
  const std::span<const BlockId> here = core.BlocksOf(2);
  std::vector<uint8_t> want(4 * worker.pool().layout().token_layer_bytes()), got(want.size());
  for (int layer = 0; layer < worker.pool().layout().num_layers; ++layer) {
    other.pool().ReadTokens(layer, from[3], 0, 4, want);
    worker.pool().ReadTokens(layer, here[3], 0, 4, got);
    EXPECT_EQ(got, want) << layer;
  }
  core.Finish(2);
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineCore, OptionsAreChecked) {
  TestWorker worker(4, {});
  ManualClock clock;
  const auto create = [&](const EngineOptions& options) {
    return EngineCore::Create(&RandomModel(), &worker.pool(), options, &clock).status();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(create({.max_step_rows = 0}), StatusIs(kInvalid, HasSubstr("max_step_rows is 0")));
  EXPECT_THAT(create({.panel_rows = -1}), StatusIs(kInvalid, HasSubstr("panel_rows is -1")));
  EXPECT_THAT(create({.context_length = 100000}), StatusIs(kInvalid, HasSubstr("context_length is 100000")));
  EXPECT_THAT(create({.sharing = {.prefill_share = 1}}), StatusIs(kInvalid, HasSubstr("prefill_share")));
}

}  // namespace
}  // namespace baton
