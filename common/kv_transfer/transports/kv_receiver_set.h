// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSPORTS_KV_RECEIVER_SET_H_
#define BATON_COMMON_KV_TRANSFER_TRANSPORTS_KV_RECEIVER_SET_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_receiver.h"

namespace grpc {
class Service;
}

namespace baton {

class GrpcKvReceiver;

struct KvReceiverSetOptions {
  KvReceiverOptions receiver;
  std::vector<TransportKind> kinds;  // Those to receive by.
  std::string listen_host = "127.0.0.1";  // Where tcp listens, on a free port.
  bool share_pool = true;  // Shm: writers get the pool's memory. False: no grant may be one-sided.
};

// The receivers of one process, one per kind. Thread-safe.
class KvReceiverSet {
 public:
  // `directory` outlives the set.
  KvReceiverSet(const KvReceiverSetOptions& options, LandingDirectory* directory, const KvReceiverEvents& events);
  // As Stop.
  ~KvReceiverSet();

  // To be served by the worker's gRPC server, which ends before the set does. Null when gRPC is not among the kinds.
  grpc::Service* grpc_service() const;
  // Starts listening. `address` is where others reach the gRPC server; other kinds use its host. A kind that cannot start is
  // left out, with a warning.
  //   UNAVAILABLE  none is left.
  absl::Status Start(const std::string& address);

  // What started, best first.
  std::vector<TransportOffer> offers() const;
  // Null when that kind did not start.
  KvReceiver* Of(TransportKind kind) const;
  void Stop();

 private:
  const KvReceiverSetOptions options_;
  LandingDirectory* const directory_;
  const KvReceiverEvents events_;
  std::unique_ptr<GrpcKvReceiver> grpc_;
  std::map<TransportKind, std::unique_ptr<KvReceiver>> others_;  // Filled by Start.
  bool started_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSPORTS_KV_RECEIVER_SET_H_
