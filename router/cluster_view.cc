// SPDX-License-Identifier: Apache-2.0
#include "router/cluster_view.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

// A model's GGUF file and its tokenizer.json have fingerprints of different kinds ("gguf-...", "json-..."), which say nothing about
// each other.
bool TokenizersDiffer(absl::string_view a, absl::string_view b) {
  const auto kind = [](absl::string_view fingerprint) { return fingerprint.substr(0, fingerprint.find('-')); };
  return a != b && !a.empty() && !b.empty() && kind(a) == kind(b);
}

std::string WhyNotUsable(const WorkerInfo& worker, const ClusterViewOptions& options) {
  if (worker.silent) return "silent for two heartbeats";
  if (!worker.has_load) return "has not reported its load yet";
  if (worker.load.broken()) return absl::StrCat("broken: ", worker.load.reason());
  if (worker.load.draining()) return "draining";
  if (options.vocab_size > worker.identity.vocab_size()) {
    return absl::StrCat("vocabulary of ", worker.identity.vocab_size(), " tokens, the router's tokenizer has ",
                        options.vocab_size);
  }
  const std::string& tokenizer = worker.identity.tokenizer_fingerprint();
  if (TokenizersDiffer(tokenizer, options.tokenizer_fingerprint)) {
    return absl::StrCat("tokenizer mismatch: ", tokenizer, ", the router has ", options.tokenizer_fingerprint);
  }
  return "";
}

std::string TransportNames(const WorkerInfo& worker) { return absl::StrJoin(worker.identity.transports(), ","); }

// The counterpart that comes closest to a pair, and what keeps it from being one.
std::string WhyNotPaired(const WorkerInfo& worker, const std::vector<WorkerInfo>& workers) {
  const internal::WorkerRole other = worker.is_prefill() ? internal::DECODE : internal::PREFILL;
  const WorkerInfo* mismatch = nullptr;
  for (const WorkerInfo& candidate : workers) {
    if (candidate.identity.role() != other || !candidate.usable) continue;
    const bool closer = candidate.identity.model_fingerprint() == worker.identity.model_fingerprint();
    if (mismatch == nullptr || closer) mismatch = &candidate;
  }
  if (mismatch == nullptr) return absl::StrCat("no ", RoleName(other), " worker to pair with");
  if (mismatch->identity.model_fingerprint() != worker.identity.model_fingerprint()) {
    return absl::StrCat("model fingerprint mismatch: ", worker.identity.model_fingerprint(), ", ", RoleName(other), " worker ",
                        mismatch->ref.id, " has ", mismatch->identity.model_fingerprint());
  }
  if (mismatch->group() == worker.group()) {
    return absl::StrCat("no KV transport in common: ", TransportNames(worker), ", ", RoleName(other), " worker ", mismatch->ref.id,
                        " has ", TransportNames(*mismatch), ", here or elsewhere");
  }
  return absl::StrCat("kv layout mismatch: ", worker.identity.kv_layout(), ", ", RoleName(other), " worker ",
                      mismatch->ref.id, " has ", mismatch->identity.kv_layout());
}

bool CanPair(const WorkerInfo& a, const WorkerInfo& b) {
  if (a.identity.role() == b.identity.role() || a.group() != b.group()) return false;
  return !(a.is_prefill() ? BestTransport(a, b) : BestTransport(b, a)).empty();
}

bool NeedsPair(const WorkerInfo& worker, const ClusterViewOptions& options) {
  return worker.is_prefill() || options.disaggregate == Disaggregate::kAlways;
}

std::string WhyClusterNotReady(const std::vector<WorkerInfo>& workers, const ClusterViewOptions& options) {
  const WorkerInfo* decode = nullptr;
  const WorkerInfo* prefill = nullptr;
  const WorkerInfo* refused = nullptr;
  for (const WorkerInfo& worker : workers) {
    if (worker.usable && worker.is_decode() && decode == nullptr) decode = &worker;
    if (worker.usable && worker.is_prefill() && prefill == nullptr) prefill = &worker;
    if (!worker.usable && refused == nullptr) refused = &worker;
  }
  const std::string detail =
      refused == nullptr ? "" : absl::StrCat(" (", refused->ref.id, ": ", refused->reason, ")");
  if (decode == nullptr && prefill == nullptr) return absl::StrCat("no workers", detail);
  if (decode == nullptr) return absl::StrCat("no decode worker", detail);
  if (prefill == nullptr) return absl::StrCat("no prefill worker", detail);
  return absl::StrCat("no pair of prefill and decode workers: ", decode->ref.id, ": ", decode->reason);
}

std::vector<ContextLimit> ContextLimits(const std::vector<WorkerInfo>& workers, const ClusterViewOptions& options) {
  std::set<ContextLimit> limits;
  for (const WorkerInfo& decode : workers) {
    if (!decode.is_decode() || !decode.ready()) continue;
    ContextLimit limit{.total = decode.identity.context_length(), .prompt = decode.identity.context_length()};
    if (options.disaggregate == Disaggregate::kAlways) {
      limit.prompt = 0;
      for (const WorkerInfo& prefill : workers) {
        if (!prefill.is_prefill() || !prefill.usable || prefill.group() != decode.group()) continue;
        limit.prompt = std::max(limit.prompt, prefill.identity.context_length());
      }
    }
    limits.insert(limit);
  }
  return {limits.begin(), limits.end()};
}

int LeastVocabulary(const std::vector<WorkerInfo>& workers) {
  int least = std::numeric_limits<int>::max();
  for (const WorkerInfo& worker : workers) {
    if (worker.is_decode() && worker.ready()) least = std::min(least, worker.identity.vocab_size());
  }
  return least;
}

}  // namespace

std::string BestTransport(const WorkerInfo& prefill, const WorkerInfo& decode) {
  const auto& writers = prefill.identity.kv_endpoints();
  const auto& readers = decode.identity.kv_endpoints();
  if (writers.empty() || readers.empty()) return "grpc";
  for (const internal::KvEndpoint& reader : readers) {
    const bool both = std::any_of(writers.begin(), writers.end(), [&](const internal::KvEndpoint& writer) {
      return writer.transport() == reader.transport() && writer.host() == reader.host();
    });
    if (both) return reader.transport();
  }
  return "";
}

absl::string_view RoleName(internal::WorkerRole role) {
  switch (role) {
    case internal::PREFILL:
      return "prefill";
    case internal::DECODE:
      return "decode";
    default:
      return "unspecified";
  }
}

const WorkerInfo* ClusterView::Find(const WorkerRef& ref) const {
  for (const auto& worker : workers) {
    if (worker->ref == ref) return worker.get();
  }
  return nullptr;
}

const WorkerInfo* ClusterView::Representative() const {
  for (const auto& worker : workers) {
    if (worker->is_decode() && worker->ready()) return worker.get();
  }
  return nullptr;
}

std::shared_ptr<const ClusterView> BuildClusterView(std::vector<WorkerInfo> workers, const ClusterViewOptions& options) {
  for (WorkerInfo& worker : workers) {
    worker.reason = WhyNotUsable(worker, options);
    worker.usable = worker.reason.empty();
    worker.paired = false;
  }
  auto view = std::make_shared<ClusterView>();
  for (WorkerInfo& worker : workers) {
    if (!worker.usable) continue;
    worker.paired = !NeedsPair(worker, options) ||
                    std::any_of(workers.begin(), workers.end(), [&](const WorkerInfo& other) {
                      return other.usable && CanPair(worker, other);
                    });
    if (!worker.paired) worker.reason = WhyNotPaired(worker, workers);
    if (worker.paired && worker.is_decode()) view->ready = true;
  }
  if (view->ready) {
    view->contexts = ContextLimits(workers, options);
    view->vocab_size = LeastVocabulary(workers);
  } else {
    view->reason = WhyClusterNotReady(workers, options);
  }
  std::sort(workers.begin(), workers.end(), [](const WorkerInfo& a, const WorkerInfo& b) {
    return std::tuple(a.identity.role(), a.ref) < std::tuple(b.identity.role(), b.ref);
  });
  for (WorkerInfo& worker : workers) {
    view->workers.push_back(std::make_shared<const WorkerInfo>(std::move(worker)));
  }
  return view;
}

}  // namespace baton
