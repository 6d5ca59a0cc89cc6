// SPDX-License-Identifier: Apache-2.0
#include "router/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/token_hash.h"
#include "router/status_details.h"

namespace baton {
namespace {

bool Contains(const std::vector<WorkerRef>& list, const WorkerRef& ref) {
  return std::find(list.begin(), list.end(), ref) != list.end();
}

// Prompts that decode workers compute themselves, or perhaps: a row panel of a chunk.
constexpr int64_t kLightTokens = 65;

// Calls that a prefill worker is given beyond its slots for streams that stand still.
constexpr int kRecoverySlots = 4;

int64_t TotalTokens(const RouteRequest& request) { return std::max(request.num_tokens, request.total_tokens); }

}  // namespace

Admission::Admission(const AdmissionOptions& options, std::unique_ptr<RoutePolicy> policy, uint64_t seed)
    : options_(options), policy_(std::move(policy)), rng_(seed), view_(BuildClusterView({}, {})) {}

void Admission::Enqueue(RouteRequest request, MonotonicTime now, std::vector<Grant>* grants) {
  if (!request.resumed && !IsServable(request)) {
    grants->push_back({request.ticket, NotReady(request)});
    return;
  }
  // Those that had begun wait for what new ones may not get either, or for their turn to land.
  const bool waits = !request.resumed && num_new_waiting_ > 0 && !MayOvertake(request);
  if (!waits) {
    absl::StatusOr<Route> route = TryRoute(request);
    if (route.ok() || absl::IsUnavailable(route.status())) {
      grants->push_back({request.ticket, std::move(route)});
      return;
    }
  }
  if (!request.resumed && num_new_waiting_ >= options_.max_queue) {
    grants->push_back({request.ticket, WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                                          "queue is full: ", num_new_waiting_, " requests wait, max_queue is ",
                                                          options_.max_queue)),
                                                      ComputeRetryAfter())});
    return;
  }
  if (absl::Status late = waits ? CheckDeadline(request, now) : absl::OkStatus(); !late.ok()) {
    grants->push_back({request.ticket, std::move(late)});
    return;
  }
  if (!request.resumed) {
    if (num_new_waiting_ == 0) {
      num_dispatches_ = 0;
      last_dispatch_ = now;
    }
    if (num_new_waiting_++ == 0) NoteBlocked(request);
    num_light_waiting_ += IsLight(request);
  }
  const int rank = request.recovering ? 0 : request.resumed ? 1 : kNewRank;
  const uint64_t turn = request.resumed ? 0 : TakeTurn(request);
  queue_.emplace(QueueKey(rank, -request.priority, turn, next_arrival_++), Waiting{std::move(request)});
  NoteOutages(now);
}

Admission::Queue::iterator Admission::Erase(Queue::iterator it) {
  const RouteRequest& request = it->second.request;
  if (!request.resumed) {
    --num_new_waiting_;
    num_light_waiting_ -= IsLight(request);
    if (num_new_waiting_ == 0) blocked_ = Blocked::kNot;
  }
  const int order = std::get<1>(it->first);
  const auto next = queue_.erase(it);
  const auto rest = queue_.lower_bound(QueueKey(kNewRank, order, 0, 0));
  if (rest == queue_.end() || std::get<1>(rest->first) != order) turns_.erase(-order);
  return next;
}

// No prefill worker is needed, or only perhaps.
bool Admission::IsLight(const RouteRequest& request) const {
  if (!request.needs_prefill || request.cached_on) return true;
  return options_.disaggregate == Disaggregate::kAdaptive && request.num_tokens <= kLightTokens;
}

size_t Admission::num_waiting_for(internal::WorkerRole role) const {
  return blocked_ == (role == internal::PREFILL ? Blocked::kOnPrefill : Blocked::kOnDecode) ? queue_.size() : 0;
}

void Admission::Forget(uint64_t ticket) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (it->second.request.ticket != ticket) continue;
    Erase(it);
    return;
  }
}

// `request` has to wait: for a decode worker, or, where one could take it, for a prefill worker.
void Admission::NoteBlocked(const RouteRequest& request) {
  RouteRequest without = request;
  without.needs_prefill = false;
  const bool decode = !Candidates(internal::DECODE, without, nullptr).empty();
  blocked_ = decode ? Blocked::kOnPrefill : Blocked::kOnDecode;
  reserved_context_ = TotalTokens(request);
}

bool Admission::MayOvertake(const RouteRequest& request) const {
  switch (blocked_) {
    case Blocked::kNot:
      return false;
    case Blocked::kOnPrefill:
      return IsLight(request);
    case Blocked::kOnDecode:
      return TotalTokens(request) < reserved_context_ && view_->ready && view_->contexts.front().total < reserved_context_;
  }
  return false;
}

void Admission::SetView(std::shared_ptr<const ClusterView> view, MonotonicTime now, std::vector<Grant>* grants) {
  view_ = std::move(view);
  for (auto it = accounts_.begin(); it != accounts_.end();) {
    const WorkerInfo* worker = view_->Find(it->first);
    // The account of a run that left lives on while calls to it are open, so that a session that comes back finds it.
    if (worker == nullptr && it->second.open_calls == 0) {
      it = accounts_.erase(it);
      continue;
    }
    if (worker != nullptr && worker->load_sequence != it->second.load_sequence) {
      it->second.load_sequence = worker->load_sequence;
      it->second.refused = false;
      it->second.tokens_since_report = 0;
      it->second.others_running = std::max(0, worker->load.running() - it->second.open_calls);
      if (worker->load.waiting() == 0) it->second.local_tokens = 0;
    }
    ++it;
  }
  for (auto it = queue_.begin(); it != queue_.end();) {
    const RouteRequest& request = it->second.request;
    if (request.resumed || IsServable(request)) {
      ++it;
      continue;
    }
    grants->push_back({request.ticket, NotReady(request)});
    it = Erase(it);
  }
  Pump(now, grants);
  NoteOutages(now);
}

void Admission::Tick(MonotonicTime now, std::vector<Grant>* grants) {
  NoteOutages(now);
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (now - it->second.outage_since < options_.outage_timeout) {
      ++it;
      continue;
    }
    grants->push_back({it->second.request.ticket, NotReady(it->second.request)});
    it = Erase(it);
  }
}

void Admission::NoteOutages(MonotonicTime now) {
  for (auto& [key, waiting] : queue_) {
    if (!waiting.request.resumed) return;  // New requests are refused as soon as nobody can take them.
    if (IsServable(waiting.request)) {
      waiting.outage_since = absl::InfiniteDuration();
    } else if (waiting.outage_since == absl::InfiniteDuration()) {
      waiting.outage_since = now;
    }
  }
}

void Admission::Release(const WorkerRef& worker, int64_t num_tokens, bool refused, MonotonicTime now,
                        std::vector<Grant>* grants) {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return;
  Account& account = it->second;
  --account.open_calls;
  account.open_tokens -= num_tokens;
  account.tokens_since_report = std::max<int64_t>(0, account.tokens_since_report - num_tokens);
  account.refused = refused;
  if (account.open_calls <= 0 && view_->Find(worker) == nullptr) accounts_.erase(it);
  Pump(now, grants);
}

int Admission::open_calls(const WorkerRef& worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() ? 0 : it->second.open_calls;
}

void Admission::Pump(MonotonicTime now, std::vector<Grant>* grants) {
  blocked_ = Blocked::kNot;
  for (auto it = queue_.begin(); it != queue_.end();) {
    const RouteRequest& request = it->second.request;
    if (blocked_ != Blocked::kNot && !MayOvertake(request)) {
      if (blocked_ == Blocked::kOnPrefill ? num_light_waiting_ == 0 : view_->contexts.size() < 2) return;
      ++it;
      continue;
    }
    absl::StatusOr<Route> route = TryRoute(request);
    if (!route.ok() && !absl::IsUnavailable(route.status())) {
      if (!request.resumed && blocked_ == Blocked::kNot) NoteBlocked(request);
      ++it;
      continue;
    }
    if (route.ok() && !request.resumed) NoteDispatch(now);
    if (!request.resumed) turns_[request.priority].begun = std::get<2>(it->first);
    grants->push_back({request.ticket, std::move(route)});
    it = Erase(it);
  }
}

absl::StatusOr<Route> Admission::TryRoute(const RouteRequest& request) {
  if (request.prefill_only) return TryPrefillOnly(request);
  if (request.sibling_at) {
    // Whole blocks of the prompt are shared there: what it needs of its own is the last one.
    absl::StatusOr<Route> route = TryProbe(request, request.sibling_at, std::min<int64_t>(request.num_tokens, kTokensPerUnit));
    if (route.ok()) {
      route->sibling = true;
      route->reason = "sibling";
      return route;
    }
  }
  const WorkerInfo* decode = Choose(internal::DECODE, request, nullptr);
  if (decode == nullptr) return request.cached_on ? TryProbe(request, request.cached_on, request.num_tokens) : MustWait();
  Route route{.decode = decode->ref, .group = decode->group(), .num_tokens = request.num_tokens};
  if (options_.disaggregate == Disaggregate::kNever) {
    route.reason = "never";
  } else if (!request.needs_prefill) {
    route.reason = request.local_reason.empty() ? "nothing to prefill" : request.local_reason;
  } else if (options_.disaggregate == Disaggregate::kAdaptive) {
    return TryAdaptive(request, *decode);
  } else if (const WorkerInfo* prefill = Choose(internal::PREFILL, request, &route.group)) {
    route.prefill = prefill->ref;
    route.reason = "always";
    Take(route.prefill, request.num_tokens);
  } else {
    // Only a request that had begun may end up here without a prefill worker in the group: see Candidates.
    route.reason = "no prefill worker";
  }
  TakeDecode(request, &route);
  return route;
}

absl::StatusOr<Route> Admission::TryProbe(const RouteRequest& request, const WorkerRef& worker, int64_t num_tokens) {
  RouteRequest without = request;
  without.needs_prefill = false;
  without.total_tokens = TotalTokens(request);
  without.num_tokens = num_tokens;
  for (const RouteCandidate& candidate : Candidates(internal::DECODE, without, nullptr)) {
    if (candidate.worker->ref != worker) continue;
    Take(worker, num_tokens);
    return Route{.decode = worker,
                 .probe = options_.disaggregate != Disaggregate::kNever,
                 .group = candidate.worker->group(),
                 .reason = "always",
                 .num_tokens = num_tokens};
  }
  return MustWait();
}

absl::StatusOr<Route> Admission::TryPrefillOnly(const RouteRequest& request) {
  if (!HasPrefill(request.group, request)) return absl::UnavailableError("no other prefill worker");
  const WorkerInfo* prefill = Choose(internal::PREFILL, request, &request.group);
  if (prefill == nullptr) return MustWait();
  Take(prefill->ref, request.num_tokens);
  return Route{.prefill = prefill->ref, .group = request.group, .reason = "always", .num_tokens = request.num_tokens};
}

bool Admission::Suits(const WorkerInfo& worker, internal::WorkerRole role, const RouteRequest& request,
                      const GroupKey* group) const {
  if (worker.identity.role() != role || !worker.usable || Contains(request.avoid, worker.ref)) return false;
  if (!request.resumed && !worker.paired) return false;
  if (group != nullptr && worker.group() != *group) return false;
  if (!request.fingerprint.empty() && worker.identity.model_fingerprint() != request.fingerprint) return false;
  return worker.identity.context_length() >= (role == internal::DECODE ? TotalTokens(request) : request.num_tokens);
}

std::vector<RouteCandidate> Admission::Candidates(internal::WorkerRole role, const RouteRequest& request,
                                                  const GroupKey* group) const {
  const bool decode = role == internal::DECODE;
  const bool needs_prefill = decode && options_.disaggregate == Disaggregate::kAlways && request.needs_prefill;
  // Who overtakes leaves alone what the first one waits for.
  const bool leaves = decode && !request.resumed && blocked_ == Blocked::kOnDecode;
  std::vector<RouteCandidate> candidates, disliked;
  for (const auto& worker : view_->workers) {
    if (!Suits(*worker, role, request, group) || !HasCredit(*worker, request)) continue;
    if (leaves && worker->identity.context_length() >= reserved_context_) continue;
    if (needs_prefill) {
      // A pair or nothing; only where a begun request has no prefill worker at all does decode do both.
      const GroupKey own = worker->group();
      const bool exists = HasPrefill(own, request);
      if (exists ? Candidates(internal::PREFILL, request, &own).empty() : !request.resumed) continue;
    }
    auto it = accounts_.find(worker->ref);
    RouteCandidate candidate{worker.get()};
    if (it != accounts_.end()) {
      candidate.open_calls = it->second.open_calls;
      candidate.open_tokens = it->second.open_tokens;
    }
    (Contains(request.dislike, worker->ref) ? disliked : candidates).push_back(candidate);
  }
  return candidates.empty() ? disliked : candidates;
}

bool Admission::HasPrefill(const GroupKey& group, const RouteRequest& request) const {
  RouteRequest begun = request;  // Paired or not: the group says that.
  begun.resumed = true;
  return std::any_of(view_->workers.begin(), view_->workers.end(),
                     [&](const auto& worker) { return Suits(*worker, internal::PREFILL, begun, &group); });
}

bool Admission::IsServable(const RouteRequest& request) const {
  if (request.prefill_only) return true;
  const bool prefill = !request.resumed && options_.disaggregate == Disaggregate::kAlways && request.needs_prefill;
  return std::any_of(view_->workers.begin(), view_->workers.end(), [&](const auto& worker) {
    return Suits(*worker, internal::DECODE, request, nullptr) && (!prefill || HasPrefill(worker->group(), request));
  });
}

bool Admission::HasCredit(const WorkerInfo& worker, const RouteRequest& request) const {
  auto it = accounts_.find(worker.ref);
  const Account account = it == accounts_.end() ? Account() : it->second;
  // A stream that stands still goes before prompts that have not begun: the worker computes it first.
  const bool ahead = request.recovering && worker.is_prefill();
  if (request.recovering && worker.is_decode() &&
      account.recovering >= MaxLandingRecoveries(options_.recovery_share, worker.load.credit_slots())) {
    return false;
  }
  if (account.refused || account.open_calls >= worker.load.credit_slots() + (ahead ? kRecoverySlots : 0)) return false;
  // An idle worker judges itself whether the request can ever fit; else it would wait here for ever.
  if (ahead || account.open_calls == 0 || worker.load.block_size() == 0) return true;
  const int64_t tokens = static_cast<int64_t>(worker.load.credit_blocks()) * worker.load.block_size();
  return account.tokens_since_report + request.num_tokens <= tokens;
}

const WorkerInfo* Admission::Choose(internal::WorkerRole role, const RouteRequest& request, const GroupKey* group) {
  const std::vector<RouteCandidate> candidates = Candidates(role, request, group);
  if (candidates.empty()) return nullptr;
  const size_t chosen =
      policy_->Choose({.role = role, .num_tokens = request.num_tokens, .prefixes = request.prefixes.get(), .candidates = candidates}, *view_, rng_);
  return candidates[std::min(chosen, candidates.size() - 1)].worker;
}

void Admission::Take(const WorkerRef& worker, int64_t num_tokens) {
  auto [it, fresh] = accounts_.try_emplace(worker);
  Account& account = it->second;
  if (fresh) {
    const WorkerInfo* const known = view_->Find(worker);
    account.load_sequence = known->load_sequence;
    account.others_running = known->load.running();
  }
  ++account.open_calls;
  account.open_tokens += num_tokens;
  account.tokens_since_report += num_tokens;
}

absl::Status Admission::NotReady(const RouteRequest& request) const {
  std::string reason = view_->reason;
  if (reason.empty()) {
    int longest = 0;
    for (const auto& worker : view_->workers) {
      if (worker->is_decode() && worker->usable) longest = std::max(longest, worker->identity.context_length());
    }
    if (longest < TotalTokens(request)) {
      reason = absl::StrCat("the request needs a context of ", TotalTokens(request), " tokens, the longest left is ", longest);
    } else if (!request.fingerprint.empty()) {
      reason = absl::StrCat("no decode worker is left that has model ", request.fingerprint, " and did not fail this request");
    } else {
      reason = absl::StrCat("none is left that did not fail this request (", request.avoid.size(), " did) and takes a prompt of ",
                            request.num_tokens, " tokens");
    }
  }
  return WithRetryAfter(absl::UnavailableError(absl::StrCat("no workers for this model: ", reason)), absl::Seconds(1));
}

}  // namespace baton
