// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_RECEIVER_H_
#define BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_RECEIVER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "baton/internal/kv.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/grpc/frame_message.h"
#include "common/kv_transfer/receiver_core.h"
#include "common/rpc/event_stream.h"

namespace baton {

// KV links over gRPC: two-sided, a frame is written into its zone by the gRPC thread that received it, so the stream's own
// flow control holds back a writer that is faster than this machine's memory.
//
// A service: register it with the worker's RpcServer, whose end is also the end of all links. Thread-safe.
class GrpcKvReceiver final : public internal::KvPeer::WithRawCallbackMethod_Link<internal::KvPeer::Service>, public KvReceiver {
 public:
  // `directory` outlives the service and its server.
  GrpcKvReceiver(KvReceiverOptions options, LandingDirectory* directory, KvReceiverEvents events);

  TransportKind kind() const override { return TransportKind::kGrpc; }
  TransportOffer offer() const override;
  // Where writers reach the server; set before the first offer.
  void SetAddress(std::string address);
  void Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant& grant) override;
  void Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) override;
  void Abort(const PeerId& peer, const TransferId& transfer, int attempt) override;
  void Stop() override {}  // The server's.

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Link(grpc::CallbackServerContext* context) override;

 private:
  using Stream = ServerEventStream<grpc::ByteBuffer, grpc::ByteBuffer>;
  struct LinkState {
    std::shared_ptr<Stream> stream;
    bool greeted = false;  // Touched by the stream's reading thread only, as is `peer`.
    PeerId peer;
    LinkAdmissions admissions;
  };

  void OnBytes(const std::shared_ptr<LinkState>& link, grpc::ByteBuffer* bytes);
  void OnMessage(const std::shared_ptr<LinkState>& link, const internal::KvLinkRequest& message);
  absl::Status OnHello(const std::shared_ptr<LinkState>& link, const internal::KvHello& hello);
  void OnOpen(const std::shared_ptr<LinkState>& link, const internal::KvOpen& open);
  void OnFrame(const LinkState& link, const IncomingMessage::Frame& frame);
  void OnLinkDone(const std::shared_ptr<LinkState>& link);
  void Reply(const PeerId& peer, const internal::KvLinkReply& reply);

  const ReceiverCore core_;
  mutable Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerId, std::shared_ptr<Stream>> links_ ABSL_GUARDED_BY(mutex_);  // The newest link of each peer.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_RECEIVER_H_
