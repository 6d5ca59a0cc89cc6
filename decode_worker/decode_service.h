// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_DECODE_SERVICE_H_
#define BATON_DECODE_WORKER_DECODE_SERVICE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "baton/internal/decode.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/kv_precision.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transports/kv_links.h"
#include "common/kv_transfer/transports/kv_receiver_set.h"
#include "common/rpc/multiplexed_server_calls.h"
#include "common/worker/worker_runtime.h"
#include "decode_worker/grammar_cache.h"

namespace baton {

class DecodeCall;
using DecodeCalls = MultiplexedServerCalls<internal::DecodeRequest, internal::DecodeEvent, internal::DecodeCallRequests,
                                           internal::DecodeCallEvents>;

// The decode worker's service: one call, alone or among those of a router's one stream, is one transfer and the generation that
// follows. Thread-safe.
class DecodeService final : public internal::DecodeWorker::CallbackService {
 public:
  // `runtime` outlives the service.
  explicit DecodeService(WorkerRuntime* runtime);
  ~DecodeService() override;

  grpc::ServerBidiReactor<internal::DecodeRequest, internal::DecodeEvent>* Decode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<internal::DecodeCallRequests, internal::DecodeCallEvents>* DecodeMany(
      grpc::CallbackServerContext* context) override;

  // Opens the KV links. `address` is where others reach this worker's gRPC server. Once, before the first call.
  //   UNAVAILABLE  no transport could be started.
  absl::Status StartReceivers(const std::string& address);
  // Closes them, and those to prefill workers; after the server, before the engine stops.
  void StopReceivers() {
    grammars_.Stop();
    links_.Stop();
    receivers_.Stop();
  }
  // Served beside this one; null when gRPC is not among the transports.
  grpc::Service* kv_link_service() { return receivers_.grpc_service(); }

  // How long a landing waits for its first frame: prompts queue and are computed meanwhile, which the router bounds; this is
  // for a router that never says Stop. For tests.
  void SetLandingBackstop(absl::Duration backstop) { landing_backstop_ = backstop; }
  absl::Duration landing_backstop() const { return landing_backstop_; }

  int num_open_calls() const { return num_open_calls_.load(); }
  // When no calls are open: has their last words written and ends the streams that carried them; waits for that, at most so long.
  void FinishStreams(absl::Duration timeout);

 private:
  friend class DecodeCall;
  // What a Start asks for, but for its format. Any thread.
  //   UNAVAILABLE       this worker drains.
  //   INVALID_ARGUMENT  a field that is wrong; and codes of WorkerRuntime::CheckTokens.
  absl::StatusOr<SequenceSpec> MakeSpec(const internal::DecodeStart& start);
  KvReceiverEvents ReceiverEvents();
  // Engine thread: what `event` does to the call of this transfer, if there is one.
  void WithCall(const TransferId& transfer, const std::function<void(EngineCore&, DecodeCall&)>& event);
  void WithAllCalls(const std::function<void(EngineCore&, DecodeCall&)>& event);

  // ---- Engine thread.
  // Best first, without those in `corrupt` and those over which KV arrived corrupt lately; with them when nothing else is left.
  std::vector<TransportOffer> OffersWithout(const std::set<TransportKind>& corrupt) const;
  void OnCorrupt(TransportKind kind);
  // Whether this peer may be granted to write by itself: its quarantine is below the cap.
  bool MayWriteItself(const PeerId& peer) const;
  void CountQuarantined(const PeerId& peer, int num_blocks);
  // KV has landed over it: what it was held in by the writer and on the way.
  void NotePrecision(TransportKind kind, const LandingStats& stats);

  WorkerRuntime* const runtime_;
  absl::Duration landing_backstop_ = absl::Minutes(3);
  GrammarCache grammars_;
  LandingDirectory directory_;
  KvReceiverSet receivers_;
  KvLinks links_;  // To prefill workers, for what is cached here.
  std::map<TransportKind, MonotonicTime> distrusted_until_;  // Engine thread only, as is the next.
  absl::flat_hash_map<PeerId, int> quarantined_blocks_;      // By the one-sided writer that may write to them still.
  // Of whatever is in the pool, what ever landed included: nobody keeps it for each block. Engine thread only.
  KvPrecision held_in_;
  std::atomic<int> num_open_calls_{0};
  Mutex streams_mutex_;
  CondVar stream_ended_;
  std::map<uint64_t, std::shared_ptr<DecodeCalls>> streams_ ABSL_GUARDED_BY(streams_mutex_);  // By number.
  uint64_t next_stream_ ABSL_GUARDED_BY(streams_mutex_) = 1;
  std::atomic<SequenceId> next_sequence_{1};
  // Engine thread only. A call stays here while a writer may still write to blocks it has quarantined.
  absl::flat_hash_map<TransferId, std::shared_ptr<DecodeCall>> calls_;
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_DECODE_SERVICE_H_
