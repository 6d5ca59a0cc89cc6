// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_TRANSPORT_PAIR_H_
#define BATON_TESTS_SUPPORT_TRANSPORT_PAIR_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/link_sender.h"
#include "common/kv_transfer/transports/kv_receiver_set.h"
#include "common/rpc/server.h"

namespace baton::testing {

// The layout of the pools in these tests: three layers of two heads.
KvLayout SmallLayout(int block_size = 16, KvDtype dtype = KvDtype::kF16);
// Blocks full of values that every dtype has (small integers), different everywhere.
std::unique_ptr<KvPool> FilledPool(const KvLayout& layout, int num_blocks, uint32_t seed);

// The receiving side without a worker around it: a pool, a directory, a receiver of one kind, and what it reported. Who opens
// an attempt that has a zone is granted it, by itself where the kind is one-sided.
class TestReceiver {
 public:
  struct Options {
    TransportKind kind = TransportKind::kInproc;
    KvLayout layout = SmallLayout();
    int num_blocks = 64;
    uint64_t incarnation = 7;
    std::string model = "model-a";
    bool grant_one_sided = true;
    bool int8_wire = false;  // Frames come in eight bits.
    bool require_tokens = false;
    bool share_pool = true;  // False: nobody is granted to write by himself, by whatever kind.
    bool on_device = true;   // Of kinds that move device memory: the pool lies on a simulated GPU, where it is not kept to the receiver.
    bool verify_frames = true;
  };
  explicit TestReceiver(const Options& options);
  ~TestReceiver();

  KvReceiver& receiver() { return *receivers_->Of(options_.kind); }
  TransportOffer offer() { return receiver().offer(); }
  // In which KV comes.
  KvLayout wire_layout() const;
  KvPool& pool() { return *pool_; }
  // The same with these blocks in both its forms, as an engine brings what has landed to its device, and then to the host.
  const KvPool& PoolWith(std::span<const BlockId> blocks);
  LandingDirectory& directory() { return directory_; }
  const Options& options() const { return options_; }

  // Opens a zone for tokens [first_token, num_tokens) in `blocks`, with a token.
  std::shared_ptr<LandingZone> OpenZone(const TransferId& transfer, int attempt, std::vector<BlockId> blocks, int first_token,
                                        int num_tokens, std::function<void()> on_unpinned = nullptr);
  // Closes it, as a worker does.
  void CloseZone(const std::shared_ptr<LandingZone>& zone);

  // What was reported; the waits end after 20 s with nothing.
  struct ManifestEvent {
    TransferId transfer;
    int attempt;
    PeerId peer;
    absl::Status verified;
    LandingStats stats;
  };
  std::optional<ManifestEvent> WaitManifest(const TransferId& transfer, int attempt);
  bool WaitAborted(const TransferId& transfer, int attempt);
  bool WaitOpen(const TransferId& transfer, int attempt);
  bool WaitLinkClosed(const PeerId& peer);
  // `times`: how often it was said, all in all.
  bool WaitWriterGone(const PeerId& peer, int times = 1);
  int num_manifests() const;
  int num_denied() const;  // Writers that had not the token of their attempt.
  // Ends the receiver, links and all.
  void Stop();

 private:
  KvCompatibility Compatibility() const;

  struct Named {
    TransferId transfer;
    int attempt;
    friend bool operator==(const Named&, const Named&) = default;
  };
  KvReceiverEvents Events();
  void OnOpen(const TransferId& transfer, int attempt, const PeerId& peer);
  bool Wait(const std::function<bool()>& done);

  const Options options_;
  std::unique_ptr<KvPool> pool_;
  LandingDirectory directory_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<ManifestEvent> manifests_ ABSL_GUARDED_BY(mutex_);
  std::vector<Named> opened_ ABSL_GUARDED_BY(mutex_), aborted_ ABSL_GUARDED_BY(mutex_);
  std::vector<PeerId> closed_ ABSL_GUARDED_BY(mutex_), gone_ ABSL_GUARDED_BY(mutex_);
  int num_denied_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<KvReceiverSet> receivers_;
  std::unique_ptr<RpcServer> server_;
};

// A sender of the same kind to it.
struct SenderOptions {
  const KvPool* pool = nullptr;
  PeerId self = {"p-1", 11};
  std::string model = "model-a";
  absl::Duration transfer_timeout = absl::Seconds(10);
  size_t max_frame_bytes = 1 << 20;
  bool checksum_frames = true;
  // Around each link that the sender makes; null: none.
  std::function<std::unique_ptr<KvLink>(std::unique_ptr<KvLink>)> decorate;
};
std::unique_ptr<LinkSender> MakeSender(const TransportOffer& offer, const SenderOptions& options);

// One attempt through a sender, pushed as a prefill worker does: chunk by chunk, layer by layer.
struct TestJob {
  TransferId transfer = {1, 1};
  int attempt = 1;
  std::vector<BlockId> blocks;
  int first_token = 0;
  int num_tokens = 0;
  int chunk_tokens = 1 << 20;
  uint64_t peer_incarnation = 7;
  WriteToken token = {};
};
class RunningJob {
 public:
  RunningJob(KvSender* sender, const TestJob& job);
  // Pushes everything and finishes; `num_layers` of the sender's pool.
  void PushAll(int num_layers);
  void PushLayers(int layer_begin, int layer_end);
  void FinishManifest();
  void Cancel() { sender_->Cancel(transfer_); }
  // How it ended; nothing after 20 s.
  std::optional<absl::Status> Wait();
  SendStats stats() const;
  bool reads_device() const { return sender_->ReadsDevice(transfer_); }

 private:
  struct Done {
    Mutex mutex;
    CondVar changed;
    int count ABSL_GUARDED_BY(mutex) = 0;
    absl::Status status ABSL_GUARDED_BY(mutex);
    SendStats stats ABSL_GUARDED_BY(mutex);
  };
  KvSender* const sender_;
  const TestJob job_;
  const std::shared_ptr<Done> done_;
  std::shared_ptr<KvSender::Transfer> transfer_;
};

// Whether the tokens [first, end) in `target_blocks` of `target` are those of `source`, converted.
bool SameTokens(const KvPool& source, std::span<const BlockId> source_blocks, const KvPool& target,
                std::span<const BlockId> target_blocks, int first_token, int end_token);

// A pool with what `wire`, of the block size that a receiver has, makes of tokens [0, end_token): the blocks in order.
std::unique_ptr<KvPool> AsOnTheWire(const KvPool& source, std::span<const BlockId> source_blocks, const KvLayout& wire, int end_token);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_TRANSPORT_PAIR_H_
