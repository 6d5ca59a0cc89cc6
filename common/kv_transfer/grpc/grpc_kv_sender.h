// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_SENDER_H_
#define BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_SENDER_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "baton/internal/kv.grpc.pb.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/kv_sender.h"
#include "common/rpc/event_stream.h"

namespace baton {

struct GrpcKvSenderOptions {
  std::string worker;  // This process, for Hello.
  uint64_t incarnation = 0;
  KvCompatibility compatibility;
  std::string address;                               // The peer's.
  absl::Duration transfer_timeout = absl::Seconds(10);  // No progress for so long ends a job.
  size_t max_frame_bytes = 1 << 20;                  // Payload of a frame.
  size_t max_queued_bytes = 4 << 20;                 // Frames in gRPC's hands and ours, per link.
};

// The link to one peer over gRPC, opened at the first job and again after it broke. One thread reads the blocks, frames and
// sends them, in the order pushed over all jobs of the link.
class GrpcKvSender final : public KvSender {
 public:
  // `pool` outlives the sender.
  GrpcKvSender(const GrpcKvSenderOptions& options, const KvPool* pool);
  // As Stop.
  ~GrpcKvSender() override;

  const char* transport() const override { return "grpc"; }
  std::shared_ptr<Transfer> Begin(SendJob job) override;
  void Push(const std::shared_ptr<Transfer>& transfer, int layer_begin, int layer_end, int token_begin,
            int token_end) override;
  void Finish(const std::shared_ptr<Transfer>& transfer, Manifest manifest) override;
  void Cancel(const std::shared_ptr<Transfer>& transfer) override;
  void Stop() override;

 private:
  using Stream = ClientEventStream<internal::KvLinkRequest, internal::KvLinkReply>;
  struct Piece {
    int layer_begin, layer_end, token_begin, token_end;
  };
  struct Command {
    enum class Kind { kBegin, kPush, kFinish, kCancel } kind = Kind::kBegin;
    std::shared_ptr<Transfer> transfer;
    Piece piece = {};
    Manifest manifest;
    MonotonicTime enqueued = absl::ZeroDuration();
  };
  // One connection attempt of the link; replaced when it breaks.
  struct Link {
    std::shared_ptr<Stream> stream;
    Mutex mutex;
    CondVar changed;
    bool greeted ABSL_GUARDED_BY(mutex) = false;
    bool closed ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
    uint64_t peer_incarnation ABSL_GUARDED_BY(mutex) = 0;
  };

  void Run();
  void Handle(Command& command);
  absl::Status EnsureLink(const Transfer& transfer);
  absl::Status OpenLink();
  void CloseLink(absl::Duration flush_timeout);
  absl::Status BeginTransfer(Transfer& transfer);
  absl::Status SendPiece(Transfer& transfer, const Piece& piece);
  absl::Status SendFrame(Transfer& transfer, int layer, int token_begin, int token_end);
  absl::Status SendManifest(Transfer& transfer, const Manifest& manifest);
  absl::Status WaitWritable(const Transfer& transfer);
  void End(Transfer& transfer, const absl::Status& status);
  void OnReply(const std::shared_ptr<Link>& link, const internal::KvLinkReply& reply);
  void MarkFenced(const TransferId& transfer, int attempt);

  const GrpcKvSenderOptions options_;
  const KvPool* const pool_;
  // Descriptors only: bounded by the jobs the worker admits times layers and chunks.
  BoundedQueue<Command> commands_;
  std::shared_ptr<Link> link_;  // Sender thread only.
  Mutex mutex_;
  std::map<std::pair<TransferId, int>, std::weak_ptr<Transfer>> open_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_GRPC_GRPC_KV_SENDER_H_
