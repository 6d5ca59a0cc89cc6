// SPDX-License-Identifier: Apache-2.0
#include "router/route_policy.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

class LeastLoaded : public RoutePolicy {
 public:
  size_t Choose(const RouteQuery& query, const ClusterView&, RouteRng& rng) override {
    size_t best = 0;
    int equal = 0;
    for (size_t i = 0; i < query.candidates.size(); ++i) {
      const auto load = LoadOf(query, query.candidates[i]);
      const auto best_load = LoadOf(query, query.candidates[best]);
      if (i == 0 || load < best_load) {
        best = i;
        equal = 1;
      } else if (load == best_load && std::uniform_int_distribution<int>(0, equal++)(rng) == 0) {
        best = i;
      }
    }
    return best;
  }

 private:
  // Work there, this router's (counted here, to the last call) and that of others (as reported), then blocks in use.
  static std::tuple<int64_t, int64_t> LoadOf(const RouteQuery& query, const RouteCandidate& candidate) {
    const internal::WorkerLoad& load = candidate.worker->load;
    const int64_t others = std::max(0, load.running() + load.waiting() - candidate.open_calls);
    if (query.role == internal::PREFILL) return {candidate.open_tokens + others * query.num_tokens, candidate.open_calls};
    return {candidate.open_calls + others, candidate.open_tokens};
  }
};

class RoundRobin : public RoutePolicy {
 public:
  size_t Choose(const RouteQuery& query, const ClusterView&, RouteRng&) override {
    // The first after the last one chosen, in the order of ids.
    WorkerRef& last = last_[query.role];
    size_t next = query.candidates.size(), first = 0;
    for (size_t i = 0; i < query.candidates.size(); ++i) {
      const WorkerRef& ref = query.candidates[i].worker->ref;
      if (ref < query.candidates[first].worker->ref) first = i;
      if (last < ref && (next == query.candidates.size() || ref < query.candidates[next].worker->ref)) next = i;
    }
    const size_t chosen = next < query.candidates.size() ? next : first;
    last = query.candidates[chosen].worker->ref;
    return chosen;
  }

 private:
  std::map<internal::WorkerRole, WorkerRef> last_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RoutePolicy>> CreateRoutePolicy(absl::string_view name) {
  if (name == "least_loaded") return std::make_unique<LeastLoaded>();
  if (name == "round_robin") return std::make_unique<RoundRobin>();
  return absl::InvalidArgumentError(
      absl::StrCat("route policy ", name, " is unknown: one of least_loaded, round_robin"));
}

}  // namespace baton
