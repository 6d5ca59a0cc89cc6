// SPDX-License-Identifier: Apache-2.0
#include "router/route_policy.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Work there, this router's (counted here, to the last call) and that of others (as reported): of a prefill worker prompt tokens,
// then calls; of a decode worker calls, then their tokens.
using LoadKey = std::tuple<int64_t, int64_t>;

LoadKey LoadOf(const RouteQuery& query, const RouteCandidate& candidate) {
  const internal::WorkerLoad& load = candidate.worker->load;
  const int64_t others = std::max(0, load.running() + load.waiting() - candidate.open_calls);
  if (query.role == internal::PREFILL) return {candidate.open_tokens + others * query.num_tokens, candidate.open_calls};
  return {candidate.open_calls + others, candidate.open_tokens};
}

// The candidate of the least cost; of equal ones any, by chance.
template <typename Cost>
size_t Cheapest(const RouteQuery& query, RouteRng& rng, const Cost& cost_of) {
  size_t best = 0;
  int equal = 1;
  auto least = cost_of(query.candidates[0]);
  for (size_t i = 1; i < query.candidates.size(); ++i) {
    const auto cost = cost_of(query.candidates[i]);
    if (cost < least) {
      best = i;
      least = cost;
      equal = 1;
    } else if (cost == least && std::uniform_int_distribution<int>(0, equal++)(rng) == 0) {
      best = i;
    }
  }
  return best;
}

class LeastLoaded : public RoutePolicy {
 public:
  size_t Choose(const RouteQuery& query, const ClusterView&, RouteRng& rng) override {
    return Cheapest(query, rng, [&](const RouteCandidate& candidate) { return LoadOf(query, candidate); });
  }
};

class PowerOfTwo : public RoutePolicy {
 public:
  size_t Choose(const RouteQuery& query, const ClusterView&, RouteRng& rng) override {
    const size_t count = query.candidates.size();
    if (count == 1) return 0;
    const size_t first = std::uniform_int_distribution<size_t>(0, count - 1)(rng);
    // Of the others.
    const size_t second = (first + std::uniform_int_distribution<size_t>(1, count - 1)(rng)) % count;
    return LoadOf(query, query.candidates[second]) < LoadOf(query, query.candidates[first]) ? second : first;
  }
};

// What a hit saves is known in tokens: on a prefill worker the time to compute them, like those of the prompts before it, so
// both add up. On a decode worker a hit saves a transfer (or a prefill of its own), while a sequence more slows down every stream
// there for long: so it counts only among workers that have about as many.
class PrefixAware : public RoutePolicy {
 public:
  size_t Choose(const RouteQuery& query, const ClusterView&, RouteRng& rng) override {
    if (query.role == internal::PREFILL) {
      return Cheapest(query, rng, [&](const RouteCandidate& candidate) {
        const auto [tokens, calls] = LoadOf(query, candidate);
        return std::tuple(tokens + query.num_tokens - CachedTokens(query, candidate), calls);
      });
    }
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const RouteCandidate& candidate : query.candidates) least = std::min(least, std::get<0>(LoadOf(query, candidate)));
    const int64_t bound = least + std::max(kMoreSequences, least / 4);
    return Cheapest(query, rng, [&](const RouteCandidate& candidate) {
      const LoadKey load = LoadOf(query, candidate);
      const bool too_many = std::get<0>(load) > bound;
      return std::tuple(too_many, too_many ? 0 : -CachedTokens(query, candidate), load);
    });
  }

 private:
  // Or a quarter more, where there are many.
  static constexpr int64_t kMoreSequences = 1;

  static int64_t CachedTokens(const RouteQuery& query, const RouteCandidate& candidate) {
    const WorkerInfo& worker = *candidate.worker;
    if (query.prefixes == nullptr || worker.cached == nullptr) return 0;
    if (worker.identity.model_fingerprint() != query.prefixes->model_fingerprint) return 0;
    return std::min(query.num_tokens, worker.cached->NumCachedTokens(query.prefixes->names, worker.load.block_size()));
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
  if (name == "power_of_two") return std::make_unique<PowerOfTwo>();
  if (name == "prefix_aware") return std::make_unique<PrefixAware>();
  return absl::InvalidArgumentError(
      absl::StrCat("route policy ", name, " is unknown: one of prefix_aware, least_loaded, power_of_two, round_robin"));
}

}  // namespace baton
