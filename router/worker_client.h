// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_WORKER_CLIENT_H_
#define BATON_ROUTER_WORKER_CLIENT_H_

#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "baton/internal/decode.grpc.pb.h"
#include "baton/internal/prefill.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/multiplexed_client_calls.h"
#include "common/trace/trace_context.h"
#include "router/cluster_view.h"

namespace baton {

class RpcTls;

using DecodeStream = ClientCall<internal::DecodeRequest, internal::DecodeEvent>;
using PrefillStream = ClientCall<internal::PrefillRequest, internal::PrefillEvent>;

using DecodeCalls = MultiplexedClientCalls<internal::DecodeRequest, internal::DecodeEvent, internal::DecodeCallRequests,
                                           internal::DecodeCallEvents>;

// Connections to the workers in the view, one per run of a worker, so that a restarted worker never answers for the one
// before. Decode calls of a worker that multiplexes share one stream: what a step brings all of them comes as one message. Thread-safe.
class WorkerClients {
 public:
  // Connections are encrypted by `tls`; null: in the clear.
  explicit WorkerClients(std::shared_ptr<const RpcTls> tls) : tls_(std::move(tls)) {}

  // Connects to newcomers, forgets who is gone. Calls that are open keep their connection.
  void SetView(const ClusterView& view);

  // Opens a call, for the span `trace`; null when the worker is not in the view. Callbacks may come before it returns.
  std::shared_ptr<DecodeStream> OpenDecode(const WorkerRef& worker, const TraceContext& trace, DecodeStream::Callbacks callbacks);
  std::shared_ptr<PrefillStream> OpenPrefill(const WorkerRef& worker, const TraceContext& trace, PrefillStream::Callbacks callbacks);

 private:
  struct Client {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<internal::DecodeWorker::Stub> decode;
    std::unique_ptr<DecodeCalls> decode_calls;  // Null: it is of a version that does not multiplex.
    std::unique_ptr<internal::PrefillWorker::Stub> prefill;
  };
  std::shared_ptr<Client> Find(const WorkerRef& worker);

  const std::shared_ptr<const RpcTls> tls_;
  Mutex mutex_;
  std::map<WorkerRef, std::shared_ptr<Client>> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_ROUTER_WORKER_CLIENT_H_
