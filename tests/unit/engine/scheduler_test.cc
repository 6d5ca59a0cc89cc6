// SPDX-License-Identifier: Apache-2.0
#include "common/engine/scheduler.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr MonotonicTime kNow = absl::Seconds(100);

MATCHER_P2(ChunkIs, waiting, num_tokens, "") { return arg.waiting == waiting && arg.num_tokens == num_tokens; }

WaitingSequence Waiting(uint64_t order, int tokens_left, int blocks_needed = 0) {
  return {.order = order, .arrived = kNow, .tokens_left = tokens_left, .blocks_needed = blocks_needed};
}

RunningSequence Running(uint64_t order, int blocks_needed = 0, int blocks_released = 4) {
  return {.order = order, .blocks_needed = blocks_needed, .preemptible = true, .blocks_released = blocks_released};
}

TEST(PrefillSlice, FollowsTheShareAndTheTargets) {
  const struct {
    SharingOptions options;
    absl::Duration oldest_wait;
    double slice_ms;  // After a step of 10 ms.
  } cases[] = {
      {{.prefill_share = 0}, absl::Hours(1), 0},
      {{.prefill_share = 0.5}, absl::ZeroDuration(), 10},
      {{.prefill_share = 0.2}, absl::ZeroDuration(), 2.5},
      {{.prefill_share = 0.5, .itl_target = absl::Milliseconds(15)}, absl::ZeroDuration(), 5},
      {{.prefill_share = 0, .itl_target = absl::Milliseconds(50)}, absl::ZeroDuration(), 40},
      // Never so little that a prompt starves, nor so much that a stream stands still.
      {{.itl_target = absl::Milliseconds(3)}, absl::ZeroDuration(), 10.0 / 9},
      {{.itl_target = absl::Seconds(9)}, absl::ZeroDuration(), 90},
      // A late prompt.
      {{.prefill_share = 0.2, .ttft_target = absl::Seconds(1)}, absl::Milliseconds(999), 2.5},
      {{.prefill_share = 0.2, .ttft_target = absl::Seconds(1)}, absl::Milliseconds(1001), 10},
      {{.itl_target = absl::Milliseconds(11), .ttft_target = absl::Seconds(1)}, absl::Milliseconds(1001), 10},
      {{.itl_target = absl::Milliseconds(40), .ttft_target = absl::Seconds(1)}, absl::Milliseconds(1001), 30},
  };
  for (const auto& c : cases) {
    EXPECT_NEAR(absl::ToDoubleMilliseconds(PrefillSlice(c.options, absl::Milliseconds(10), c.oldest_wait)), c.slice_ms, 1e-3)
        << c.options.prefill_share << " " << c.options.itl_target << " " << c.options.ttft_target;
  }
}

TEST(Scheduler, NothingToDo) { EXPECT_TRUE(MakePlan({}, kNow, {}, {}, 0).empty()); }

TEST(Scheduler, PacksSeveralPromptsIntoOneStep) {
  const std::vector<WaitingSequence> waiting = {Waiting(1, 100), Waiting(2, 300), Waiting(3, 300), Waiting(4, 10)};
  const Plan plan = MakePlan({.max_step_rows = 512}, kNow, waiting, {}, 0);
  EXPECT_THAT(plan.prefill, ElementsAre(ChunkIs(0, 100), ChunkIs(1, 300), ChunkIs(2, 112)));
}

TEST(Scheduler, MixedStepsSpendRowsOnDecodeFirst) {
  const std::vector<WaitingSequence> waiting = {Waiting(9, 100)};
  const std::vector<RunningSequence> running = {Running(1), Running(2), Running(3)};
  Plan plan = MakePlan({.max_step_rows = 8, .mixed_steps = true}, kNow, waiting, running, 0);
  EXPECT_THAT(plan.decode, ElementsAre(0, 1, 2));
  EXPECT_THAT(plan.prefill, ElementsAre(ChunkIs(0, 5)));
  plan = MakePlan({.max_step_rows = 8, .mixed_steps = false}, kNow, waiting, running, 0);
  EXPECT_THAT(plan.prefill, ElementsAre(ChunkIs(0, 8)));
  plan = MakePlan({.max_step_rows = 3, .mixed_steps = true}, kNow, waiting, running, 0);
  EXPECT_THAT(plan.prefill, IsEmpty());
}

TEST(Scheduler, AtMostMaxRunningDecodeOldestFirst) {
  std::vector<RunningSequence> running = {Running(5), Running(3), Running(4), Running(9)};
  running[3].priority = 1;
  EXPECT_THAT(MakePlan({.max_running = 3}, kNow, {}, running, 0).decode, ElementsAre(3, 1, 2));
}

TEST(Scheduler, PreemptsTheYoungest) {
  const std::vector<RunningSequence> running = {Running(1, 1), Running(2, 1), Running(3, 0)};
  const Plan plan = MakePlan({}, kNow, {}, running, 0);
  EXPECT_THAT(plan.preempt_running, ElementsAre(2));
  EXPECT_THAT(plan.decode, ElementsAre(0, 1));
}

TEST(Scheduler, PreemptsByPriorityBeforeAge) {
  std::vector<RunningSequence> running = {Running(1, 0), Running(2, 1), Running(3, 1)};
  running[1].priority = running[2].priority = 1;
  const Plan plan = MakePlan({}, kNow, {}, running, 0);
  EXPECT_THAT(plan.preempt_running, ElementsAre(0));
  EXPECT_THAT(plan.decode, ElementsAre(1, 2));
}

TEST(Scheduler, TheLastOneSitsOutInsteadOfPreemptingItsElders) {
  const std::vector<RunningSequence> running = {Running(1, 0), Running(2, 1)};
  const Plan plan = MakePlan({}, kNow, {}, running, 0);
  EXPECT_THAT(plan.preempt_running, IsEmpty());
  EXPECT_THAT(plan.decode, ElementsAre(0));
}

TEST(Scheduler, SparesWhatIsNotPreemptibleOrReleasesNothing) {
  std::vector<RunningSequence> running = {Running(1, 1), Running(2, 0), Running(3, 0, 0), Running(4, 0)};
  running[3].preemptible = false;
  const Plan plan = MakePlan({}, kNow, {}, running, 0);
  EXPECT_THAT(plan.preempt_running, ElementsAre(1));
  EXPECT_THAT(plan.decode, ElementsAre(0, 2, 3));
}

TEST(Scheduler, TakesBlocksFromLocalPrefillsToo) {
  const std::vector<RunningSequence> running = {Running(1, 1)};
  std::vector<WaitingSequence> waiting = {Waiting(7, 50)};
  waiting[0].preemptible = true;
  waiting[0].blocks_released = 2;
  const Plan plan = MakePlan({}, kNow, waiting, running, 0);
  EXPECT_THAT(plan.preempt_waiting, ElementsAre(0));
  EXPECT_THAT(plan.decode, ElementsAre(0));
  EXPECT_THAT(plan.prefill, IsEmpty());
}

TEST(Scheduler, RecomputationGoesFirst) {
  std::vector<WaitingSequence> waiting = {Waiting(1, 10), Waiting(2, 10)};
  waiting[0].priority = 5;
  waiting[1].recompute = true;
  EXPECT_THAT(MakePlan({}, kNow, waiting, {}, 0).prefill, ElementsAre(ChunkIs(1, 10), ChunkIs(0, 10)));
}

TEST(Scheduler, PriorityThenArrivalThenLength) {
  std::vector<WaitingSequence> waiting = {Waiting(1, 90), Waiting(2, 50), Waiting(3, 70)};
  waiting[2].priority = 1;
  EXPECT_THAT(MakePlan({}, kNow, waiting, {}, 0).prefill, ElementsAre(ChunkIs(2, 70), ChunkIs(0, 90), ChunkIs(1, 50)));
  EXPECT_THAT(MakePlan({.shortest_remaining_first = true}, kNow, waiting, {}, 0).prefill,
              ElementsAre(ChunkIs(2, 70), ChunkIs(1, 50), ChunkIs(0, 90)));
}

TEST(Scheduler, AgeBeatsPriorityAndLength) {
  std::vector<WaitingSequence> waiting = {Waiting(1, 900), Waiting(2, 5), Waiting(3, 5)};
  waiting[0].arrived = kNow - absl::Seconds(5);
  waiting[1].priority = 3;
  const Plan plan = MakePlan({.max_step_rows = 512, .shortest_remaining_first = true}, kNow, waiting, {}, 0);
  EXPECT_THAT(plan.prefill, ElementsAre(ChunkIs(0, 512)));
}

TEST(Scheduler, StartsOnlyWithAllBlocksAndOneForEachRunning) {
  const std::vector<WaitingSequence> waiting = {Waiting(5, 64, 4)};
  const std::vector<RunningSequence> running = {Running(1), Running(2)};
  EXPECT_THAT(MakePlan({}, kNow, waiting, running, 5).prefill, IsEmpty());
  EXPECT_THAT(MakePlan({}, kNow, waiting, running, 6).prefill, ElementsAre(ChunkIs(0, 64)));
  EXPECT_THAT(MakePlan({}, kNow, waiting, {}, 4).prefill, ElementsAre(ChunkIs(0, 64)));
}

TEST(Scheduler, SmallOnesPassUntilTheBigOneHasAged) {
  std::vector<WaitingSequence> waiting = {Waiting(1, 160, 10), Waiting(2, 16, 1), Waiting(3, 16, 0)};
  EXPECT_THAT(MakePlan({}, kNow, waiting, {}, 4).prefill, ElementsAre(ChunkIs(1, 16), ChunkIs(2, 16)));
  waiting[0].arrived = kNow - absl::Seconds(5);
  EXPECT_THAT(MakePlan({}, kNow, waiting, {}, 4).prefill, ElementsAre(ChunkIs(2, 16)));
  waiting[0].arrived = kNow;
  waiting[0].recompute = true;
  EXPECT_THAT(MakePlan({}, kNow, waiting, {}, 4).prefill, ElementsAre(ChunkIs(2, 16)));
}

// A worker in miniature: prompts come, are computed, generate and end, and the plans are carried out as the engine does.
class Miniature {
 public:
  explicit Miniature(uint64_t seed) : rng_(seed) {
    options_.max_step_rows = 1 + static_cast<int>(rng_() % 40);
    options_.max_running = 1 + static_cast<int>(rng_() % 6);
    options_.mixed_steps = rng_() % 2 == 0;
    options_.shortest_remaining_first = rng_() % 2 == 0;
    total_ = free_ = 8 + static_cast<int>(rng_() % 20);
  }

  void Run() {
    for (uint64_t order = 0; order < 40; ++order) {
      const int prompt = 1 + static_cast<int>(rng_() % (4 * (total_ - 2)));
      const int most = 4 * total_ - prompt;
      all_.push_back({.order = order, .priority = static_cast<int>(rng_() % 3), .arrival = static_cast<int>(rng_() % 300),
                      .tokens = prompt, .end = prompt + 1 + static_cast<int>(rng_() % most)});
    }
    int idle = 0;
    for (step_ = 0; !AllDone(); ++step_) {
      const bool worked = Step();
      idle = worked || step_ < 300 ? 0 : idle + 1;
      ASSERT_LT(idle, 3) << "stuck at step " << step_;
      ASSERT_LT(step_, 100000) << "does not end";
      ASSERT_GE(free_, 0);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(free_, total_);
  }

 private:
  struct Sequence {
    uint64_t order;
    int priority, arrival;
    int tokens, end;  // It ends with `end` tokens.
    int computed = 0, blocks = 0;
    bool recompute = false, progress = true, done = false;
    int target() const { return tokens - 1; }
    bool running() const { return !done && blocks > 0 && computed >= target(); }
  };
  static int Blocks(int tokens) { return (tokens + 3) / 4; }

  bool AllDone() const {
    return std::ranges::all_of(all_, [](const Sequence& s) { return s.done; });
  }

  bool Step() {
    std::vector<WaitingSequence> waiting;
    std::vector<RunningSequence> running;
    std::vector<Sequence*> w, r;
    for (Sequence& s : all_) {
      if (s.done || s.arrival > step_) continue;
      if (s.running()) {
        r.push_back(&s);
        running.push_back({s.priority, s.order, Blocks(s.tokens) - s.blocks, s.progress, s.blocks});
      } else {
        w.push_back(&s);
        waiting.push_back({s.priority, s.order, absl::Seconds(s.arrival), std::max(1, s.target() - s.computed),
                           s.blocks > 0 ? 0 : Blocks(s.tokens), s.recompute, s.blocks > 0 && s.progress, s.blocks});
      }
    }
    const Plan plan = MakePlan(options_, absl::Seconds(step_), waiting, running, free_);
    for (int i : plan.preempt_running) Preempt(r[i]);
    for (int i : plan.preempt_waiting) Preempt(w[i]);
    EXPECT_LE(static_cast<int>(plan.decode.size()), options_.max_running);
    int rows = 0;
    for (int i : plan.decode) {
      Sequence* s = r[i];
      EXPECT_GT(s->blocks, 0) << "preempted and run";
      free_ -= Blocks(s->tokens) - s->blocks;
      EXPECT_GE(free_, 0);
      s->blocks = Blocks(s->tokens);
      rows += options_.mixed_steps;
      ++s->computed;
      ++s->tokens;
      s->progress = true;
      s->recompute = false;
      if (s->tokens >= s->end) {
        free_ += std::exchange(s->blocks, 0);
        s->done = true;
      }
    }
    for (const PrefillChunk& chunk : plan.prefill) {
      Sequence* s = w[chunk.waiting];
      EXPECT_GT(chunk.num_tokens, 0);
      rows += chunk.num_tokens;
      if (s->blocks == 0) {
        s->blocks = Blocks(s->tokens);
        free_ -= s->blocks;
        EXPECT_GE(free_, 0);
      }
      s->computed += chunk.num_tokens;
    }
    EXPECT_TRUE(plan.prefill.empty() || rows <= options_.max_step_rows) << rows;
    return !plan.empty();
  }

  void Preempt(Sequence* s) {
    EXPECT_TRUE(s->progress) << "preempted before it made progress";
    free_ += std::exchange(s->blocks, 0);
    s->computed = 0;
    s->recompute = true;
    s->progress = false;
  }

  std::mt19937_64 rng_;
  SchedulerOptions options_;
  int total_, free_, step_ = 0;
  std::vector<Sequence> all_;
};

TEST(Scheduler, RandomWorkloadsEndWithoutOvercommitOrStarvation) {
  for (uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Miniature(seed).Run();
  }
}

}  // namespace
}  // namespace baton
