// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_ROUTE_POLICY_H_
#define BATON_ROUTER_ROUTE_POLICY_H_

#include <cstdint>
#include <memory>
#include <random>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/cluster_view.h"

namespace baton {

// A worker that may be chosen: usable, paired, with a credit left. What this router has open there is newer than the
// worker's own report.
struct RouteCandidate {
  const WorkerInfo* worker = nullptr;
  int open_calls = 0;       // By this router.
  int64_t open_tokens = 0;  // Prompt tokens of those calls.
};

struct RouteQuery {
  internal::WorkerRole role = internal::DECODE;
  int64_t num_tokens = 0;              // Prompt and what was emitted before.
  const PromptPrefixes* prefixes = nullptr;  // Of the prompt; null: not known.
  std::span<const RouteCandidate> candidates;  // At least one.
};

using RouteRng = std::mt19937_64;

// Chooses one worker for one role. Called under the dispatcher's lock: no blocking, no I/O. May keep state.
class RoutePolicy {
 public:
  virtual ~RoutePolicy() = default;
  // An index into query.candidates. All state that decides comes from the arguments, or from earlier calls.
  virtual size_t Choose(const RouteQuery& query, const ClusterView& view, RouteRng& rng) = 0;
};

// "least_loaded": decode by open sequences, prefill by open prompt tokens, ties by chance. "round_robin": in turn.
// "power_of_two": the less loaded of two drawn by chance. "prefix_aware": prefill where the prompt tokens before it and those of its own
// that are not cached are fewest; decode where most of it is cached, among those with at most one sequence, or a
// quarter, more than the least loaded; then as least_loaded.
//   INVALID_ARGUMENT  unknown name; the message lists the known ones.
absl::StatusOr<std::unique_ptr<RoutePolicy>> CreateRoutePolicy(absl::string_view name);

}  // namespace baton

#endif  // BATON_ROUTER_ROUTE_POLICY_H_
