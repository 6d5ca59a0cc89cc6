// SPDX-License-Identifier: Apache-2.0
// --disaggregate adaptive: the pair, and whether its prefill worker is worth asking.
#include <algorithm>

#include "router/admission.h"

namespace baton {
namespace {

// Of a worker that has computed no prompt yet: of the order of a small model on a few cores.
constexpr double kUnknownMsPerToken = 1;

double PrefillMsPerToken(const WorkerInfo& worker) {
  const double rate = worker.load.prefill().tokens_per_second();
  return rate > 0 ? 1000 / rate : kUnknownMsPerToken;
}

}  // namespace

absl::StatusOr<Route> Admission::TryAdaptive(const RouteRequest& request, const WorkerInfo& decode) {
  Route route{.decode = decode.ref, .group = decode.group(), .num_tokens = request.num_tokens};
  const WorkerInfo* free = Choose(internal::PREFILL, request, &route.group);
  const WorkerInfo* prefill = free;
  for (const auto& worker : view_->workers) {  // The least loaded, when none has a credit.
    if (free != nullptr || !Suits(*worker, internal::PREFILL, request, &route.group)) continue;
    if (prefill == nullptr || open_calls(worker->ref) < open_calls(prefill->ref)) prefill = worker.get();
  }
  if (prefill == nullptr) {
    route.reason = "no prefill worker";
  } else {
    route.costs = Costs(decode, *prefill);
    route.costs->prefill_available = free != nullptr;
    const Placement placement = PlacePrefill(options_.placement, *route.costs, request.num_tokens - 1, /*num_cached=*/0);
    route.reason = PlacementReasonName(placement.reason);
    if (!placement.locally) {
      if (free == nullptr) return MustWait();
      route.prefill = free->ref;
      Take(route.prefill, request.num_tokens);
    }
  }
  TakeDecode(request, &route);
  if (!route.prefill) accounts_[route.decode].local_tokens += request.num_tokens;
  return route;
}

PlacementCosts Admission::Costs(const WorkerInfo& decode, const WorkerInfo& prefill) const {
  PlacementCosts costs;
  costs.local_ms_per_token = PrefillMsPerToken(decode);
  costs.remote_ms_per_token = PrefillMsPerToken(prefill);
  costs.history_ms = prefill.load.history_ms();
  costs.history_ms_per_token = prefill.load.history_ms_per_token();
  if (auto it = accounts_.find(decode.ref); it == accounts_.end()) {
    costs.local_streams = decode.load.running();
  } else {
    // Not what runs by the last report: that is half a second old, and what has ended since would keep prompts away.
    costs.local_streams = it->second.open_calls + it->second.others_running;
    costs.local_backlog_ms = static_cast<double>(it->second.local_tokens) * costs.local_ms_per_token;
  }
  if (auto it = accounts_.find(prefill.ref); it != accounts_.end()) {
    costs.remote_backlog_ms = static_cast<double>(it->second.open_tokens) * costs.remote_ms_per_token;
  }
  return costs;
}

}  // namespace baton
