// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WORKER_OPTIONS_H_
#define BATON_COMMON_WORKER_WORKER_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "baton/internal/registry.pb.h"
#include "common/backend/backend.h"
#include "common/backend/create_backend.h"
#include "common/engine/engine_core.h"
#include "common/kv_transfer/transport_kind.h"
#include "common/trace/tracer.h"

namespace baton {

class RpcTls;
class TlsStore;

// Priorities beyond this, either way, count as this.
inline constexpr int32_t kMaxPriority = 1000000;

// Whether a prefill worker has the beginning of a prompt sent by the decode worker that has it cached: when that is sooner than
// computing it, always, or never.
enum class PullHistory { kAuto, kAlways, kNever };

// What one worker process is told. A role is scheduler options, not another program: the two binaries differ in which
// services they offer.
struct WorkerOptions {
  internal::WorkerRole role = internal::ROLE_UNSPECIFIED;
  std::string id;                    // Empty: role and a random suffix.
  std::string model_path;
  std::string served_model_name;     // Empty: the model file's own short name.
  std::string listen = "127.0.0.1:0";
  std::string advertise;             // Where others reach us; empty: the listening address.
  std::string status;                // Empty: no status server.
  std::vector<std::string> routers;  // Registered with all of them.
  // Between the processes of the cluster: what is served at `listen`, registration, KV by grpc. Null: in the clear.
  std::shared_ptr<const RpcTls> cluster_tls;
  std::shared_ptr<TlsStore> status_tls;  // Of the status server; null: HTTP.
  std::string api_key_file;          // Of the key that routers are shown; empty: none.
  bool vllm_metrics = false;         // vLLM's names at /metrics as well.

  // Nice value of the threads that compute, 0 to 19; what answers calls keeps the process's own. Nothing: the role's, so that
  // on shared cores a decode step, which somebody watches, goes before a prefill chunk, which still gets a third of them.
  std::optional<int> compute_nice;
  std::string device = "auto";
  BackendOptions backend;
  EngineOptions engine;
  std::optional<int64_t> kv_memory_bytes;  // Nothing: kv_memory_share of what the cgroup leaves, at most 64 contexts.
  double kv_memory_share = 0.5;            // (0, 1]
  int max_context = 0;                     // 0: the model's.
  KvDtype kv_dtype = KvDtype::kF16;
  bool int8_wire = false;  // KV that comes over a network does so in eight bits, whatever the pool has.
  int block_size = 16;
  PullHistory pull_history = PullHistory::kAuto;  // Prefill workers.

  absl::Duration transfer_timeout = absl::Seconds(10);
  absl::Duration grace = absl::Seconds(30);
  // An engine thread that has not come round for so long is stuck: the longest unit between two turns is one row panel of one
  // layer, a fraction of a second even on a machine that is overloaded.
  absl::Duration engine_stuck_after = absl::Seconds(10);
  TracerOptions trace;  // Its `instance` is set to the worker's id.
  // How KV may travel, without those that show it to a network where cluster_tls is there to hide it; every kind of the two that
  // a pair has in common is a fallback of the better ones.
  std::vector<TransportKind> transports = {TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc};
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WORKER_OPTIONS_H_
