// SPDX-License-Identifier: Apache-2.0
#include "router/prefill_placement.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr PlacementOptions kOptions = {.local_share = 0.25, .handoff_ms = 4, .stream_penalty = 2};

TEST(PrefillPlacement, Table) {
  const struct {
    const char* what;
    PlacementCosts costs;
    int64_t num_tokens, num_cached;
    bool locally;
    PlacementReason reason;
  } cases[] = {
      // Computed before a handoff would be done: 4 ms, whatever that is in tokens.
      {"a short prompt", {1, 0, 8, true, 1, 0}, 4, 0, true, PlacementReason::kShort},
      {"one token more, beside streams", {1, 0, 8, true, 1, 0}, 5, 0, false, PlacementReason::kLong},
      {"a short one of a fast machine", {0.02, 0, 8, true, 0.02, 0}, 200, 0, true, PlacementReason::kShort},
      {"a longer one there", {0.02, 0, 8, true, 0.02, 0}, 201, 0, false, PlacementReason::kLong},
      {"a long one that is cached", {1, 0, 8, true, 1, 0}, 2004, 2000, true, PlacementReason::kCached},
      {"one token more left", {1, 0, 8, true, 1, 0}, 2005, 2000, false, PlacementReason::kLong},
      // Nobody to disturb: the handoff's own time decides, and a faster machine.
      {"an idle decode worker", {1, 0, 0, true, 1, 0}, 1000, 0, true, PlacementReason::kSooner},
      {"an idle one, prefill twice as fast", {1, 0, 0, true, 0.5, 0}, 1000, 0, false, PlacementReason::kLong},
      // Beside streams: 4 times as long, and twice that much sooner.
      {"a busy prefill worker, not busy enough", {1, 0, 8, true, 1, 600}, 100, 0, false, PlacementReason::kLong},
      {"a busy prefill worker", {1, 0, 8, true, 1, 800}, 100, 0, true, PlacementReason::kPrefillBusy},
      {"no credit, and the same backlog", {1, 0, 8, false, 1, 800}, 100, 0, true, PlacementReason::kPrefillBusy},
      // What decode has cached and prefill has not has to come from there: 2000 tokens in 22 ms, which a local prefill need not wait for.
      {"the next turn, history in no time", {1, 0, 0, true, 0.5, 0, 2, 0.01}, 2100, 2000, false, PlacementReason::kLong},
      {"the next turn, history over a slow network", {1, 0, 0, true, 0.5, 0, 2, 0.1}, 2100, 2000, true, PlacementReason::kSooner},
      {"... slower than computing it", {1, 0, 8, true, 0.01, 0, 2, 0.1}, 2100, 2000, false, PlacementReason::kLong},
      {"decode has prompts of its own", {1, 500, 0, true, 1, 100}, 100, 0, false, PlacementReason::kLong},
  };
  for (const auto& c : cases) {
    const Placement placement = PlacePrefill(kOptions, c.costs, c.num_tokens, c.num_cached);
    EXPECT_EQ(placement.locally, c.locally) << c.what;
    EXPECT_STREQ(PlacementReasonName(placement.reason), PlacementReasonName(c.reason)) << c.what;
  }
}

}  // namespace
}  // namespace baton
