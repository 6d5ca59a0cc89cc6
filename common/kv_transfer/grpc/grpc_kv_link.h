// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_LINK_H_
#define BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_LINK_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "baton/internal/kv.pb.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/kv_link.h"
#include "common/rpc/event_stream.h"

namespace baton {

class RpcTls;

struct GrpcKvLinkOptions {
  std::string address;
  std::shared_ptr<const RpcTls> tls;  // Null: in the clear.
  absl::Duration stall_timeout = absl::Seconds(10);
  size_t max_queued_bytes = 4 << 20;  // Frames in gRPC's hands and ours.
};

// A link over one bidirectional gRPC stream.
class GrpcKvLink final : public KvLink {
 public:
  GrpcKvLink(const GrpcKvLinkOptions& options, Events events);
  ~GrpcKvLink() override;

  TransportKind kind() const override { return TransportKind::kGrpc; }
  absl::StatusOr<LinkHello> Open(const LinkHello& self, absl::Duration timeout) override;
  bool alive() const override;
  absl::Status SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) override;
  absl::Status SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  absl::Status Flush(const Interrupted&) override { return absl::OkStatus(); }
  absl::Status SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                            const Interrupted& interrupted) override;
  void SendAborted(const TransferId& transfer, int attempt) override;
  void Settle() override {}  // Frames were copied.
  void Close(absl::Duration flush_timeout) override;

 private:
  using Stream = ClientEventStream<grpc::ByteBuffer, internal::KvLinkReply>;
  // What the stream's callbacks refer to: they may outlive a link whose Close gave up.
  struct State {
    Events events;
    mutable Mutex mutex;
    CondVar changed;
    std::optional<LinkHello> hello ABSL_GUARDED_BY(mutex);
    bool over ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };

  static void OnReply(State& state, const internal::KvLinkReply& reply);
  absl::Status Send(const internal::KvLinkRequest& message);
  absl::Status WaitWritable(const Interrupted& interrupted);
  absl::Status Broken() const;

  const GrpcKvLinkOptions options_;
  const std::shared_ptr<State> state_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_LINK_H_
