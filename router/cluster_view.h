// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_CLUSTER_VIEW_H_
#define BATON_ROUTER_CLUSTER_VIEW_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "baton/internal/registry.pb.h"
#include "router/cached_prefixes.h"

namespace baton {

// Where prompts are prefilled: on prefill workers, on decode workers, or where it is sooner (prefill_placement.h).
enum class Disaggregate { kAlways, kAdaptive, kNever };

// One run of one worker process. Credits, streams and prefill calls belong to it, never to a name or an address alone.
struct WorkerRef {
  std::string id;
  uint64_t incarnation = 0;  // 0: no worker.

  explicit operator bool() const { return incarnation != 0; }
  friend auto operator<=>(const WorkerRef&, const WorkerRef&) = default;
};

// What pairs: prefill and decode workers work together only within one group.
struct GroupKey {
  std::string model_fingerprint;
  std::string kv_geometry;  // Of the layout, what cannot be converted on the way.
  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

// A worker as the registry knows it. Immutable once in a view.
struct WorkerInfo {
  WorkerRef ref;
  internal::WorkerIdentity identity;
  internal::WorkerLoad load;
  bool has_load = false;   // False until the first report: takes nothing yet.
  bool silent = false;     // No report for two heartbeats.
  bool usable = false;     // New work may be sent here, as far as the worker itself is concerned.
  bool paired = false;     // Its group has a usable worker of the other role (or needs none).
  std::string reason;      // Why not usable or not paired; empty when both.
  uint64_t load_sequence = 0;  // Reports received from this run.
  std::shared_ptr<const CachedPrefixes> cached;  // Null: not known.

  bool ready() const { return usable && paired; }
  bool is_prefill() const { return identity.role() == internal::PREFILL; }
  bool is_decode() const { return identity.role() == internal::DECODE; }
  GroupKey group() const {
    return {identity.model_fingerprint(), identity.kv_geometry().empty() ? identity.kv_layout() : identity.kv_geometry()};
  }
};

// What a pair of a decode worker and the prefill workers of its group can hold.
struct ContextLimit {
  int total = 0;   // Prompt and answer together: the decode worker's.
  int prompt = 0;  // The most that one of the prefill workers takes; unless `always` the same as total.
  friend auto operator<=>(const ContextLimit&, const ContextLimit&) = default;
};

// An immutable snapshot of the cluster, shared by whoever needs one; a change makes a new one.
struct ClusterView {
  std::vector<std::shared_ptr<const WorkerInfo>> workers;  // By role, then id.
  bool ready = false;   // A request could be served: a decode worker and, unless `never`, a prefill worker of its group.
  std::string reason;   // Why not.
  // Of the ready decode workers, each once, in order; empty when not ready. A request has to fit one of them.
  std::vector<ContextLimit> contexts;
  // Of the ready decode workers the least; ids are below it.
  int vocab_size = 0;
  // The longest that a request may get somewhere; 0 when not ready.
  int context_length() const { return contexts.empty() ? 0 : contexts.back().total; }

  const WorkerInfo* Find(const WorkerRef& ref) const;
  // The first decode worker that is ready; null when there is none. Speaks for the model served.
  const WorkerInfo* Representative() const;
};

struct ClusterViewOptions {
  Disaggregate disaggregate = Disaggregate::kAlways;
  // The router's tokenizer: a worker whose model has fewer rows, or that names another tokenizer, is not usable. 0 and empty:
  // not checked.
  int vocab_size = 0;
  std::string tokenizer_fingerprint;
};

// Judges `workers` (usable, paired, reason are overwritten) and the cluster as a whole. A worker that fits no group is told
// why, with both values: "model fingerprint aa, decode worker d-1 has bb".
std::shared_ptr<const ClusterView> BuildClusterView(std::vector<WorkerInfo> workers, const ClusterViewOptions& options);

// The best transport that both have where they are, "" when they have none in common. A worker that names none has gRPC.
std::string BestTransport(const WorkerInfo& prefill, const WorkerInfo& decode);

absl::string_view RoleName(internal::WorkerRole role);  // "prefill", "decode".

}  // namespace baton

#endif  // BATON_ROUTER_CLUSTER_VIEW_H_
