// SPDX-License-Identifier: Apache-2.0
// Ends at any moment: cancels, fenced landings, owners that act from inside their callbacks.
#include <algorithm>

#include "common/engine/engine_core.h"
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
using ::baton::testing::RandomTokens;
using ::baton::testing::RunAlone;
using ::baton::testing::StatusIs;
using ::baton::testing::TestWorker;
using ::testing::HasSubstr;

TEST(EngineCancel, UnknownIdsAreIgnored) {
  TestWorker worker(4, {});
  worker.core().Cancel(9);
  worker.core().Landed(9);
  worker.core().Finish(9);
  EXPECT_TRUE(worker.core().CancelQuarantined(9).empty());
  EXPECT_TRUE(worker.core().BlocksOf(9).empty());
  EXPECT_FALSE(worker.core().Step([] {}));
}

// A04, A19, A34: at every pause of a run, one of two is cancelled. The other does not notice, and nothing is left behind.
TEST(EngineCancel, AtEveryPauseOfARun) {
  const SequenceSpec kept = MakeSpec(RandomTokens(50, 1), 6), cancelled = MakeSpec(RandomTokens(45, 2), 6);
  const auto expected = RunAlone(kept);
  for (bool decode_first : {true, false}) {
    for (int moment = 0;; ++moment) {
      TestWorker worker(16, {.max_step_rows = 40, .panel_rows = 16, .decode_first = decode_first});
      Heard a, b;
      ASSERT_THAT(worker.Generate(1, kept, &a), IsOk());
      ASSERT_THAT(worker.Generate(2, cancelled, &b), IsOk());
      int pause = 0;
      const auto cancel = [&] {
        if (pause++ == moment) worker.core().Cancel(2);
        worker.core().CheckInvariants();
      };
      worker.RunUntilIdle(cancel);
      EXPECT_EQ(a.tokens, expected) << "pause " << moment;
      EXPECT_TRUE(worker.AtBaseline()) << "pause " << moment;
      if (pause <= moment) break;
    }
  }
}

// The blocks of a cancelled sequence come back at once when its pass has no other; otherwise when the pass has ended. Never
// is one of them handed out while the pass may write to it.
TEST(EngineCancel, APausedPassNeverWritesIntoSomebodyElsesBlocks) {
  TestWorker worker(8, {.max_step_rows = 128, .panel_rows = 8, .enable_prefix_cache = false});
  Heard a, b;
  ASSERT_THAT(worker.Generate(1, MakeSpec(RandomTokens(60, 1), 3), &a), IsOk());
  ASSERT_TRUE(worker.core().Step([] {}));
  worker.core().Cancel(1);
  EXPECT_TRUE(worker.AtBaseline());  // It was alone.

  const SequenceSpec kept = MakeSpec(RandomTokens(60, 3), 3);
  ASSERT_THAT(worker.Generate(2, MakeSpec(RandomTokens(60, 2), 3), &a), IsOk());
  ASSERT_THAT(worker.Generate(3, kept, &b), IsOk());
  ASSERT_TRUE(worker.core().Step([] {}));
  worker.core().Cancel(2);
  EXPECT_EQ(worker.core().stats().blocks.used, 8);
  EXPECT_THAT(worker.core().ReserveLanding(4, MakeSpec({5}, 1), a.Sink()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("0 free")));
  while (worker.core().stats().steps == 0) ASSERT_TRUE(worker.core().Step([] {}));
  EXPECT_EQ(worker.core().stats().blocks.used, 4);
  worker.RunUntilIdle();
  EXPECT_EQ(b.tokens, RunAlone(kept));
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineCancel, ALandingGivesItsBlocksBack) {
  TestWorker worker(4, {});
  Heard heard;
  ASSERT_THAT(worker.core().ReserveLanding(1, MakeSpec(RandomTokens(60, 1), 3), heard.Sink()), IsOk());
  EXPECT_EQ(worker.core().stats().landing, 1);
  EXPECT_FALSE(worker.core().Step([] {}));
  worker.core().Cancel(1);
  EXPECT_TRUE(worker.AtBaseline());
  EXPECT_EQ(worker.core().stats().blocks.cached, 0);  // Nothing that was not verified.
}

TEST(EngineCancel, QuarantinedBlocksStayAwayUntilReleased) {
  TestWorker prefill(16, {.max_running = 0}), worker(6, {});
  const auto prompt = RandomTokens(40, 1);
  Heard warm, heard;
  ASSERT_THAT(Disaggregate(prefill, worker, 1, MakeSpec({prompt.begin(), prompt.begin() + 20}, 1), &warm), IsOk());
  worker.RunUntilIdle();
  auto landing = worker.core().ReserveLanding(2, MakeSpec(prompt, 3), heard.Sink());
  ASSERT_THAT(landing, IsOk());
  ASSERT_EQ(landing->num_cached_tokens, 16);
  const std::vector<BlockId> quarantined = worker.core().CancelQuarantined(2);
  EXPECT_EQ(quarantined, std::vector<BlockId>(landing->blocks.begin() + 1, landing->blocks.end()));
  EXPECT_EQ(worker.core().stats().blocks.quarantined, 2);
  EXPECT_EQ(worker.core().stats().blocks.cached, 1);
  EXPECT_EQ(worker.core().stats().landing, 0);
  worker.core().CheckInvariants();
  worker.core().ReleaseQuarantined(quarantined);
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineCancel, ANewAttemptGetsNewBlocks) {
  TestWorker worker(8, {});
  Heard heard;
  const SequenceSpec spec = MakeSpec(RandomTokens(40, 1), 3);
  const auto first = worker.core().ReserveLanding(1, spec, heard.Sink());
  ASSERT_THAT(first, IsOk());
  std::vector<BlockId> quarantined;
  const auto second = worker.core().ReplaceLandingBlocks(1, &quarantined);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(quarantined, first->blocks);
  for (BlockId block : second->blocks) EXPECT_EQ(std::ranges::count(first->blocks, block), 0);
  // A third attempt finds no blocks: refused, and nothing has changed.
  std::vector<BlockId> none;
  EXPECT_THAT(worker.core().ReplaceLandingBlocks(1, &none),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("3 needed, 2 free")));
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(worker.core().ReplaceLandingBlocks(5, &none), StatusIs(absl::StatusCode::kNotFound, HasSubstr("5")));
  // The late writer scribbles; the local prefill goes on in the new blocks.
  for (BlockId block : quarantined) std::ranges::fill(worker.pool().Cell(0, block), 0xFF);
  ASSERT_THAT(worker.core().PrefillLocally(1), IsOk());
  EXPECT_THAT(worker.core().ReplaceLandingBlocks(1, &none),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("past its landing")));
  worker.core().Landed(1);  // Late news of an attempt that was given up.
  worker.RunUntilIdle();
  EXPECT_EQ(heard.tokens, RunAlone(spec));
  EXPECT_EQ(worker.core().stats().blocks.quarantined, 3);
  worker.core().ReleaseQuarantined(quarantined);
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineCancel, OwnersMayEndSequencesFromTheirCallbacks) {
  const SequenceSpec spec = MakeSpec(RandomTokens(30, 1), 10);
  TestWorker worker(32, {});
  Heard a, b, c, d;
  SequenceSink sink = a.Sink();
  int tokens = 0;
  sink.on_token = [&](const TokenEvent& event) {
    a.tokens[event.choice].push_back(event.token_id);
    if (++tokens == 3) {  // Itself, one of its own batch, and one that still waits.
      worker.core().Cancel(1);
      worker.core().Cancel(2);
      worker.core().Cancel(4);
    }
  };
  ASSERT_THAT(worker.core().ReserveLanding(1, spec, std::move(sink)), IsOk());
  ASSERT_THAT(worker.core().PrefillLocally(1), IsOk());
  ASSERT_THAT(worker.Generate(2, spec, &b), IsOk());
  ASSERT_THAT(worker.Generate(3, spec, &c), IsOk());
  ASSERT_THAT(worker.core().ReserveLanding(4, spec, d.Sink()), IsOk());
  worker.RunUntilIdle();
  EXPECT_EQ(a.tokens[0].size(), 3u);
  EXPECT_FALSE(b.Ended(1));
  EXPECT_EQ(c.tokens, RunAlone(spec));
  EXPECT_TRUE(worker.AtBaseline());
}

TEST(EngineCancel, APrefillOwnerMayCancelOnProgress) {
  for (int when = 0; when < 6; ++when) {
    TestWorker worker(16, {.max_step_rows = 20, .max_running = 0, .panel_rows = 7});
    Heard other;
    int reports = 0;
    SequenceSink sink;
    sink.on_progress = [&](const PrefillProgress&) {
      if (reports++ == when) worker.core().Cancel(1);
    };
    sink.on_prefilled = [&](absl::Status) { ADD_FAILURE() << "cancelled before"; };
    ASSERT_THAT(worker.core().AddPrefill(1, MakeSpec(RandomTokens(70, 2), 1), 0, std::move(sink)), IsOk());
    ASSERT_THAT(worker.core().AddPrefill(2, MakeSpec(RandomTokens(50, 3), 1), 0, other.Sink()), IsOk());
    worker.RunUntilIdle();
    EXPECT_EQ(reports, when + 1);
    EXPECT_EQ(other.num_prefilled, 1);
    worker.core().Finish(2);
    EXPECT_TRUE(worker.AtBaseline());
  }
}

// Decode steps wait for one unit of a prefill pass at most when the pass has no share of its own, and the pass does not
// starve when it has.
TEST(EngineCancel, DecodeGoesFirst) {
  for (double share : {0.0, 0.5}) {
    TestWorker worker(64, {.max_step_rows = 256, .panel_rows = 16, .sharing = {.prefill_share = share}});
    Heard running, prompt;
    ASSERT_THAT(worker.Generate(1, MakeSpec(RandomTokens(10, 1), 100), &running), IsOk());
    while (running.events.empty()) ASSERT_TRUE(worker.core().Step([] {}));
    ASSERT_THAT(worker.Generate(2, MakeSpec(RandomTokens(200, 2), 1), &prompt), IsOk());
    // The clock stands still but for what the test adds: 4 ms per call of the pause, of which a decode step has several.
    const auto tick = [&] { worker.clock().Advance(absl::Milliseconds(4)); };
    size_t tokens_meanwhile = running.events.size();
    while (prompt.num_prefilled == 0) ASSERT_TRUE(worker.core().Step(tick));
    tokens_meanwhile = running.events.size() - tokens_meanwhile;
    const size_t units = 2 * 13;  // Two layers of 13 panels.
    if (share == 0.0) {
      EXPECT_GE(tokens_meanwhile, units - 1);
    } else {
      EXPECT_LT(tokens_meanwhile, units);
      EXPECT_GE(tokens_meanwhile, 1u);
    }
  }
}

}  // namespace
}  // namespace baton
