// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_DECODE_SERVICE_H_
#define BATON_DECODE_WORKER_DECODE_SERVICE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "baton/internal/decode.grpc.pb.h"
#include "common/kv_transfer/kv_receiver.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/worker/worker_runtime.h"

namespace baton {

class DecodeCall;

// The decode worker's service: one call is one transfer and the generation that follows. Thread-safe.
class DecodeService final : public internal::DecodeWorker::CallbackService {
 public:
  // `runtime` outlives the service.
  explicit DecodeService(WorkerRuntime* runtime);
  ~DecodeService() override;

  grpc::ServerBidiReactor<internal::DecodeRequest, internal::DecodeEvent>* Decode(
      grpc::CallbackServerContext* context) override;

  // Where writers reach this worker's KV link; set before the first call.
  void SetKvAddress(std::string address) { kv_address_ = std::move(address); }
  // The link's service, which lands frames in the transfers of this one.
  grpc::Service* kv_link_service();

  // How long a landing waits for its first frame: prompts queue and are computed meanwhile, which the router bounds; this is
  // for a router that never says Stop. For tests.
  void SetLandingBackstop(absl::Duration backstop) { landing_backstop_ = backstop; }
  absl::Duration landing_backstop() const { return landing_backstop_; }

  int num_open_calls() const { return num_open_calls_.load(); }

 private:
  friend class DecodeCall;
  KvReceiverEvents ReceiverEvents();

  WorkerRuntime* const runtime_;
  std::string kv_address_;
  absl::Duration landing_backstop_ = absl::Minutes(3);
  LandingDirectory directory_;
  std::unique_ptr<class GrpcKvReceiver> receiver_;
  std::atomic<int> num_open_calls_{0};
  std::atomic<SequenceId> next_sequence_{1};
  // Engine thread only. A call stays here while a writer may still write to blocks it has quarantined.
  absl::flat_hash_map<TransferId, std::shared_ptr<DecodeCall>> calls_;
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_DECODE_SERVICE_H_
