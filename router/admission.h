// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_ADMISSION_H_
#define BATON_ROUTER_ADMISSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "router/cluster_view.h"
#include "router/prefill_placement.h"
#include "router/route_policy.h"

namespace baton {

struct AdmissionOptions {
  Disaggregate disaggregate = Disaggregate::kAlways;
  PlacementOptions placement;  // kAdaptive.
  size_t max_queue = 1024;  // New requests that wait. Requests that ran before (recoveries, retries) always may.
  // How long a request that ran before waits while there is no worker at all for it.
  absl::Duration outage_timeout = absl::Milliseconds(1500);
  // Of a decode worker's slots, what streams that lost their worker may have at once until they have landed there.
  double recovery_share = 0.25;
};

// How many streams that lost their worker may be landing at once at a decode worker that has so many slots for this router: dozens of
// prompts at once would keep those that stream there waiting. One always may.
int MaxLandingRecoveries(double share, int slots);

// What a request asks for.
struct RouteRequest {
  uint64_t ticket = 0;  // The caller's name for it, unique while it waits.
  int priority = 0;     // Higher first; within +-kMaxPriority.
  std::string tenant;   // Who shares the queue with others of the same priority, by their weights.
  int weight = 1;       // At least 1.
  bool resumed = false; // It was dispatched before (refused, recovered, next attempt), or a choice beside it was: goes first and outlasts an outage.
  bool recovering = false;    // And the client has begun to read: before all others, past the prefill workers' slots.
  bool prefill_only = false;  // Another prefill worker for the landing that `group` has.
  GroupKey group;             // prefill_only: the decode worker's.
  std::string fingerprint;    // Not empty: no other model may continue this text.
  std::vector<WorkerRef> avoid;    // Never these: they died under this request.
  std::vector<WorkerRef> dislike;  // Not these while there are others.
  int64_t num_tokens = 0;     // To prefill: prompt and what was emitted before. Prefill workers have to hold them.
  int64_t total_tokens = 0;   // And what may still come: the decode worker has to hold them. 0: num_tokens.
  MonotonicTime deadline = absl::InfiniteDuration();  // New ones: who cannot be granted by then is refused at once.
  std::string local_reason;   // Not empty: the decode worker computes the prompt, and why; needs_prefill is false then.
  bool needs_prefill = true;  // False: decode has nothing to wait for, whoever it is; no prefill worker's credit is asked for.
  std::shared_ptr<const PromptPrefixes> prefixes;  // For the policy; null: not known.
  WorkerRef cached_on;        // This decode worker may have all of the prompt: asked alone while no prefill worker is free.
  WorkerRef sibling_at;       // A choice of the same request has landed there: it goes there, too, while there is a credit.
};

// One credit of each worker named is taken; Release gives it back.
struct Route {
  WorkerRef decode;   // None if prefill_only.
  WorkerRef prefill;  // None: decode prefills locally, unless `probe`.
  bool probe = false;  // Decode is asked for a landing first; if it is not complete, a prefill worker is sought then.
  bool recovering = false;  // Counts among the recoveries that land at `decode`, until EndRecovery.
  bool sibling = false;  // As `sibling_at` said: the few tokens behind whole blocks are computed there.
  GroupKey group;
  std::string reason;  // For the timeline: "always", "never", "no prefill worker", "sibling", or a PlacementReasonName.
  int64_t num_tokens = 0;  // The size of each credit, for Release.
  // kAdaptive, with `prefill`: what it was chosen by, to be judged again once decode has said what it has cached.
  std::optional<PlacementCosts> costs;
};

struct Grant {
  uint64_t ticket = 0;
  absl::StatusOr<Route> route;
};

// Who may start, and where: the queue, the credits and the policy. Pure and single-threaded.
//
// A credit is a hint, not a promise: a worker's share of slots, counted here by the calls that this router has open, and of
// free blocks, less what was opened since that report. A worker that refuses gets nothing more until it has reported its
// load again or one of its calls has ended.
//
// New requests of one priority are taken in turns among tenants, each as many prompt tokens as its weight says of all (start-time fair
// queueing: who was idle has saved up nothing, and all is forgotten when nobody waits), those of one tenant in order of arrival.
//
// New requests do not overtake the first one, but for those that do not want what the first one waits for: while that is a
// prefill worker, whoever needs none; while that is a decode worker of a long context, whoever is served by shorter ones.
class Admission {
 public:
  Admission(const AdmissionOptions& options, std::unique_ptr<RoutePolicy> policy, uint64_t seed);

  // Every method appends what it decided to `grants`; each request is granted (or refused) at most once.
  //   UNAVAILABLE         no pair of workers that could take it (or, prefill_only, no prefill worker); with a retry-after.
  //   RESOURCE_EXHAUSTED  max_queue requests wait, or those that go first will take longer than until `deadline`; with a retry-after.
  void Enqueue(RouteRequest request, MonotonicTime now, std::vector<Grant>* grants);
  // The request does not wait any more. A grant already made stays the caller's.
  void Forget(uint64_t ticket);
  void SetView(std::shared_ptr<const ClusterView> view, MonotonicTime now, std::vector<Grant>* grants);
  // A call has ended, or was never made; `refused`: the worker would not or could not take it. Ignored for a run of a
  // worker that is gone.
  void Release(const WorkerRef& worker, int64_t num_tokens, bool refused, MonotonicTime now, std::vector<Grant>* grants);

  // A stream whose route said `recovering` has landed, or its call has ended; before the call's Release.
  void EndRecovery(const WorkerRef& decode, MonotonicTime now, std::vector<Grant>* grants);

  // Gives up requests whose outage has lasted too long. Call several times per outage_timeout.
  void Tick(MonotonicTime now, std::vector<Grant>* grants);

  size_t num_waiting() const { return queue_.size(); }
  // Streams that lost their worker and wait for another.
  size_t num_recoveries_waiting() const;
  // Who wait while the first of the new requests waits for a worker of this role.
  size_t num_waiting_for(internal::WorkerRole role) const;
  int open_calls(const WorkerRef& worker) const;
  const ClusterView& view() const { return *view_; }

 private:
  struct Waiting {
    RouteRequest request;
    MonotonicTime outage_since = absl::InfiniteDuration();  // No worker exists that could take it, credits or not.
  };
  // Recovering first, then resumed, then by priority, then (new ones) by their tenants' turns, then in order of arrival.
  using QueueKey = std::tuple<int, int, uint64_t, uint64_t>;
  using Queue = std::map<QueueKey, Waiting>;
  static constexpr int kNewRank = 2;  // Behind all that had begun.
  // What the first of the new requests that wait waits for.
  enum class Blocked { kNot, kOnPrefill, kOnDecode };
  struct Account {
    int open_calls = 0;
    int recovering = 0;        // Among them: streams that lost their worker and have not landed here yet.
    int64_t open_tokens = 0;
    int64_t tokens_since_report = 0;  // Of calls opened since the worker last said what is free.
    int64_t local_tokens = 0;  // Of prompts that it was given to compute, until it reports that none waits.
    int others_running = 0;    // Streams there that are other routers', by its last report.
    bool refused = false;
    uint64_t load_sequence = 0;  // The report that the three above refer to.
  };

  // When its tenant's turn for it begins, in parts of tokens of a tenant of weight 1; Take: and the next one's is later by this one's.
  uint64_t BeginOfTurn(const RouteRequest& request) const;
  uint64_t TakeTurn(const RouteRequest& request);
  // Off the queue, its counts with it.
  Queue::iterator Erase(Queue::iterator it);
  void NoteBlocked(const RouteRequest& request);
  bool MayOvertake(const RouteRequest& request) const;
  void Pump(MonotonicTime now, std::vector<Grant>* grants);
  // A route, UNAVAILABLE when waiting is pointless, or RESOURCE_EXHAUSTED when it has to wait.
  absl::StatusOr<Route> TryRoute(const RouteRequest& request);
  // What TryRoute says to whom a credit is missing.
  static absl::Status MustWait() { return absl::ResourceExhaustedError("no credit"); }
  absl::StatusOr<Route> TryAdaptive(const RouteRequest& request, const WorkerInfo& decode);
  PlacementCosts Costs(const WorkerInfo& decode, const WorkerInfo& prefill) const;
  bool IsLight(const RouteRequest& request) const;
  absl::StatusOr<Route> TryPrefillOnly(const RouteRequest& request);
  // Asks `worker` alone, for a landing first; `num_tokens`: of the credit.
  absl::StatusOr<Route> TryProbe(const RouteRequest& request, const WorkerRef& worker, int64_t num_tokens);
  std::vector<RouteCandidate> Candidates(internal::WorkerRole role, const RouteRequest& request, const GroupKey* group) const;
  // Whether the worker, credits and the other role aside, may take it.
  bool Suits(const WorkerInfo& worker, internal::WorkerRole role, const RouteRequest& request, const GroupKey* group) const;
  bool HasCredit(const WorkerInfo& worker, const RouteRequest& request) const;
  const WorkerInfo* Choose(internal::WorkerRole role, const RouteRequest& request, const GroupKey* group);
  bool HasPrefill(const GroupKey& group, const RouteRequest& request) const;
  // Somebody could take it, if not now.
  bool IsServable(const RouteRequest& request) const;
  void NoteOutages(MonotonicTime now);
  void Take(const WorkerRef& worker, int64_t num_tokens);
  void TakeDecode(const RouteRequest& request, Route* route);
  absl::Status NotReady(const RouteRequest& request) const;
  absl::Duration ComputeRetryAfter() const;
  // OK, or RESOURCE_EXHAUSTED: at the pace at which those who wait have been granted lately its turn comes after its deadline.
  absl::Status CheckDeadline(const RouteRequest& request, MonotonicTime now) const;
  // One that waited is granted.
  void NoteDispatch(MonotonicTime now);

  const AdmissionOptions options_;
  const std::unique_ptr<RoutePolicy> policy_;
  RouteRng rng_;
  std::shared_ptr<const ClusterView> view_;
  Queue queue_;
  size_t num_new_waiting_ = 0;
  size_t num_light_waiting_ = 0;  // New ones that need no prefill worker, or may need none.
  Blocked blocked_ = Blocked::kNot;
  int64_t reserved_context_ = 0;  // kOnDecode: decode workers of so long a context are the first one's.
  uint64_t next_arrival_ = 0;
  struct Turns {
    uint64_t begun = 0;                    // That of the last one that was granted.
    std::map<std::string, uint64_t> next;  // Of each tenant.
  };
  std::map<int, Turns> turns_;  // By priority, of new requests that wait.
  std::map<WorkerRef, Account> accounts_;
  // The pace of the queue, since the first of those that wait now came: before it nothing is known of how fast workers get free.
  MonotonicTime last_dispatch_ = absl::ZeroDuration();
  int num_dispatches_ = 0;
  absl::Duration dispatch_interval_ = absl::ZeroDuration();  // Exponential mean.
};

}  // namespace baton

#endif  // BATON_ROUTER_ADMISSION_H_
