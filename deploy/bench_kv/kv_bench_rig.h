// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_KV_KV_BENCH_RIG_H_
#define BATON_DEPLOY_BENCH_KV_KV_BENCH_RIG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/link_sender.h"
#include "common/kv_transfer/transports/kv_receiver_set.h"
#include "common/rpc/server.h"
#include "deploy/bench_kv/kv_bench.h"

namespace baton::bench {

// The same bytes by the same way, with nothing done to them.
class RawWay {
 public:
  virtual ~RawWay() = default;
  // How long the bytes of `source` take. Where lands(), they come to lie in `destination`, which has as many.
  virtual absl::StatusOr<absl::Duration> Send(std::span<const uint8_t> source, std::span<uint8_t> destination) = 0;
  virtual bool lands() const { return false; }
};

// A pool to send from, a pool to receive into, and the way between them by one kind of transport. One thread.
class KvBenchRig {
 public:
  // Pools of `max_bytes` each or, where the ceiling lands in blocks, of more than the caches hold; touched. Of kinds that move memory of a
  // device, on that of the driver in `cuda_driver`.
  static absl::StatusOr<std::unique_ptr<KvBenchRig>> Create(TransportKind kind, int64_t max_bytes, const std::string& cuda_driver);
  ~KvBenchRig();

  // From now on. At first: the same.
  void UseBlocks(KvBenchBlocks blocks) { blocks_ = blocks; }
  // Whether the ceiling brings its bytes to blocks of the pool, as a transfer does: then it matters which.
  bool ceiling_lands() const { return raw_ == nullptr || raw_->lands(); }

  // How long the transfer of `bytes` takes until it has verified.
  absl::StatusOr<absl::Duration> Transfer(int64_t bytes, bool checksums);
  // How long they take at best, by the next blocks of the same kind.
  absl::StatusOr<absl::Duration> Ceiling(int64_t bytes);

 private:
  explicit KvBenchRig(TransportKind kind) : kind_(kind) {}
  absl::Status Init(int64_t max_bytes, const std::string& cuda_driver);
  // Nobody pays for fresh pages while the clock runs.
  void Touch();
  absl::Status TouchMappings();
  KvReceiverEvents Events();
  void OnOpen(const TransferId& transfer, int attempt, const PeerId& peer);
  absl::StatusOr<MonotonicTime> WaitVerified();  // When that was.
  // Of so many neighbours, to be used by the next measurement; the same in both pools.
  BlockId FirstBlock(int num_blocks);

  const TransportKind kind_;
  KvLayout layout_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> source_, target_, mapping_;  // `mapping_`: target_ as a writer sees it.
  LandingDirectory directory_;
  std::unique_ptr<KvReceiverSet> receivers_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<LinkSender> checked_, unchecked_;
  std::unique_ptr<RawWay> raw_;  // Null: memcpy.
  KvBenchBlocks blocks_ = KvBenchBlocks::kSame;
  BlockId next_block_ = 0;
  uint64_t next_stream_ = 1;
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> verified_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime verified_at_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_KV_KV_BENCH_RIG_H_
