// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_LINK_SENDER_H_
#define BATON_COMMON_KV_TRANSFER_LINK_SENDER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/kv_sender.h"

namespace baton {

struct LinkSenderOptions {
  PeerId self;  // For Hello; its transport is the links' kind.
  KvCompatibility compatibility;
  std::string address;  // The peer's, for messages.
  absl::Duration transfer_timeout = absl::Seconds(10);  // No grant, or nothing taken, for so long ends a job.
  absl::Duration connect_timeout = absl::Seconds(2);
  size_t max_frame_bytes = 1 << 20;  // Payload of a frame; at least one block's part of a layer.
  bool checksum_frames = true;       // False: for measuring what they cost. No receiver that serves takes such frames.
  const Clock* clock = Clock::Real();
  bool own_thread = true;  // False: for simulations, whose owner calls Step.
};

// A new link to the same peer, not yet open.
using KvLinkFactory = std::function<std::unique_ptr<KvLink>(KvLink::Events)>;

// The KvSender of every transport that moves host memory: one thread that keeps a link to one peer, opened at the first job
// and again after it broke, and reads, converts, checksums and frames the blocks, in the order pushed over all jobs of the
// link.
//
// After a one-sided link broke, a new one is opened without waiting for a job: only a Hello tells the peer that nothing of
// ours writes to its blocks any more, and until then they stay in quarantine there.
class LinkSender final : public KvSender {
 public:
  // `pool` outlives the sender.
  LinkSender(const LinkSenderOptions& options, const KvPool* pool, KvLinkFactory make_link);
  // As Stop.
  ~LinkSender() override;

  TransportKind kind() const override { return options_.self.transport; }
  std::shared_ptr<Transfer> Begin(SendJob job) override;
  void SetBlocks(const std::shared_ptr<Transfer>& transfer, std::vector<BlockId> blocks) override;
  void Push(const std::shared_ptr<Transfer>& transfer, int layer_begin, int layer_end, int token_begin,
            int token_end) override;
  bool ReadsDevice(const std::shared_ptr<Transfer>& transfer) const override;
  void Finish(const std::shared_ptr<Transfer>& transfer, Manifest manifest) override;
  void Cancel(const std::shared_ptr<Transfer>& transfer) override;
  void Stop() override;

  // Without own_thread: what its thread would do next, at most one command. False when there was none.
  bool Step();
  // Jobs that have not ended.
  size_t num_open() const;

 private:
  struct Piece {
    int layer_begin, layer_end, token_begin, token_end;
  };
  struct Command {
    enum class Kind { kBegin, kBlocks, kPush, kFinish, kCancel, kGranted, kDenied, kLinkClosed };
    Kind kind = Kind::kBegin;
    std::shared_ptr<Transfer> transfer;  // Null for kLinkClosed.
    Piece piece = {};
    Manifest manifest = {};
    std::vector<BlockId> blocks = {};
    LinkGrant grant = {};
    absl::Status status = absl::OkStatus();
    uint64_t link_number = 0;
    MonotonicTime enqueued = absl::ZeroDuration();
  };
  friend class KvSender::Transfer;

  void Run();
  void Work(std::optional<Command> command);
  void Handle(Command command);
  void HandleOf(const std::shared_ptr<Transfer>& transfer, Command& command);
  absl::Status Do(Transfer& transfer, Command& command);
  void EndLateWaiters();
  void EndOpen(const absl::Status& status, bool of_this_link_only);

  absl::Status BeginTransfer(const std::shared_ptr<Transfer>& transfer);
  absl::Status EnsureLink();
  absl::Status OpenLink();
  void CloseLink(absl::Duration flush_timeout);
  // The link is of no use any more: ends its jobs with `status`.
  void BreakLink(const absl::Status& status);
  void SayHelloAgain();
  void OnAnswer(const TransferId& transfer, int attempt, Command command);

  // link_sender_frames.cc.
  // Whether the link makes the checksums of whole cells.
  bool LinkSums(const Transfer& transfer) const;
  absl::Status SendPiece(Transfer& transfer, const Piece& piece);
  absl::Status SendFrame(Transfer& transfer, int layer, int token_begin, int token_end);
  absl::Status FinishTransfer(Transfer& transfer, Command& command);
  absl::Status Interrupted(const Transfer& transfer) const;
  void End(Transfer& transfer, absl::Status status);

  const LinkSenderOptions options_;
  const KvPool* const pool_;
  const KvLinkFactory make_link_;
  // Descriptors only: bounded by the jobs the worker admits times layers and chunks.
  BoundedQueue<Command> commands_;

  // Sender thread only, but link_number_'s copies.
  std::shared_ptr<KvLink> link_;
  uint64_t link_number_ = 0;
  LinkHello peer_;
  KvLayout target_;  // The peer's.
  bool direct_ = false;  // A whole cell of ours is one of the peer's.
  std::vector<uint8_t> scratch_;
  std::vector<std::shared_ptr<Transfer>> waiting_;  // For their grant.
  bool asked_ = false;  // An Open went over link_.
  // A one-sided link broke after an Open, and no other one has been opened since.
  bool hello_due_ = false;
  int num_hellos_failed_ = 0;
  MonotonicTime next_hello_ = absl::ZeroDuration();

  mutable Mutex mutex_;
  std::map<std::pair<TransferId, int>, std::shared_ptr<Transfer>> open_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_LINK_SENDER_H_
