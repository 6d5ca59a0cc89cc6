// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PREFILL_PLACEMENT_H_
#define BATON_ROUTER_PREFILL_PLACEMENT_H_

#include <cstdint>

namespace baton {

// What it costs to compute a prompt on its decode worker, and on a prefill worker, as far as the router knows when it chooses
// the pair. Times in milliseconds.
struct PlacementCosts {
  double local_ms_per_token = 0;   // While nothing else runs there.
  double local_backlog_ms = 0;     // Of the prompts that the decode worker computes already.
  int local_streams = 0;           // That generate there, or are about to: they and the prompt share its time.
  bool prefill_available = true;   // A prefill worker with a credit.
  double remote_ms_per_token = 0;
  double remote_backlog_ms = 0;    // Of the prompts that the prefill worker has been sent.
  // For it to have what decode has cached sent there: so long, and so long for each token. 0: that is not known, or not done.
  double history_ms = 0;
  double history_ms_per_token = 0;
};

struct PlacementOptions {
  // The decode worker's own share for prefill while streams run (its --prefill-share).
  double local_share = 0.35;
  // Calls, queues and the end of the transfer: measured on one machine, a few milliseconds (--handoff-time). What decode computes in that time is never
  // worth a second process.
  double handoff_ms = 4;
  // Streams that run lose time to a local prefill; to one elsewhere they don't. So it must be sooner by this factor.
  double stream_penalty = 1.5;
};

enum class PlacementReason { kShort, kCached, kPrefillBusy, kSooner, kLong };
// "short", "cached", "prefill busy", "sooner here", "long": for the timeline.
const char* PlacementReasonName(PlacementReason reason);

struct Placement {
  bool locally = false;
  PlacementReason reason = PlacementReason::kLong;
};

// Where the prompt's KV is computed: `num_tokens` in all, of which the decode worker has `num_cached` already. Pure.
Placement PlacePrefill(const PlacementOptions& options, const PlacementCosts& costs, int64_t num_tokens, int64_t num_cached);

}  // namespace baton

#endif  // BATON_ROUTER_PREFILL_PLACEMENT_H_
