// SPDX-License-Identifier: Apache-2.0
#include "router/prefill_placement.h"

#include <algorithm>

namespace baton {

const char* PlacementReasonName(PlacementReason reason) {
  switch (reason) {
    case PlacementReason::kShort: return "short";
    case PlacementReason::kCached: return "cached";
    case PlacementReason::kPrefillBusy: return "prefill busy";
    case PlacementReason::kSooner: return "sooner here";
    case PlacementReason::kLong: return "long";
  }
  return "unknown";
}

Placement PlacePrefill(const PlacementOptions& options, const PlacementCosts& costs, int64_t num_tokens, int64_t num_cached) {
  const int64_t left = num_tokens - num_cached;
  const auto is_short = [&](int64_t tokens) { return static_cast<double>(tokens) * costs.local_ms_per_token <= options.handoff_ms; };
  if (is_short(left)) return {.locally = true, .reason = is_short(num_tokens) ? PlacementReason::kShort : PlacementReason::kCached};
  const double share = costs.local_streams > 0 ? options.local_share : 1;
  const double local_ms = (costs.local_backlog_ms + static_cast<double>(left) * costs.local_ms_per_token) / share;
  // A prefill worker may have more or less of the prompt cached than decode; what it has is found out too late. What it lacks it
  // reads from decode or computes.
  double history_ms = 0;
  if (num_cached > 0 && costs.history_ms_per_token > 0) {
    history_ms = std::min(costs.history_ms + static_cast<double>(num_cached) * costs.history_ms_per_token,
                          static_cast<double>(num_cached) * costs.remote_ms_per_token);
  }
  const double remote_ms =
      costs.remote_backlog_ms + history_ms + static_cast<double>(left) * costs.remote_ms_per_token + options.handoff_ms;
  const double penalty = costs.local_streams > 0 ? options.stream_penalty : 1;
  if (local_ms * penalty >= remote_ms) return {.locally = false, .reason = PlacementReason::kLong};
  const bool waits = !costs.prefill_available || costs.remote_backlog_ms > options.handoff_ms;
  return {.locally = true, .reason = waits ? PlacementReason::kPrefillBusy : PlacementReason::kSooner};
}

}  // namespace baton
