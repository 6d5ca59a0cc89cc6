// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_KV_RAW_STREAM_H_
#define BATON_DEPLOY_BENCH_KV_RAW_STREAM_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/thread.h"
#include "common/kv_transfer/stream/socket.h"
#include "deploy/bench_kv/kv_bench_rig.h"

namespace baton::bench {

// Bytes over TCP to this machine: as many connections as a KV link has, written by one thread in turns of 1 MiB, read by one
// thread per connection into where they belong.
class RawTcp final : public RawWay {
 public:
  static absl::StatusOr<std::unique_ptr<RawWay>> Create();
  ~RawTcp() override;
  absl::StatusOr<absl::Duration> Send(std::span<const uint8_t> source, std::span<uint8_t> destination) override;
  bool lands() const override { return true; }

 private:
  RawTcp() = default;
  void Receive(size_t connection);

  std::vector<Fd> senders_, receivers_;
  Mutex mutex_;
  CondVar changed_;
  int64_t sending_ ABSL_GUARDED_BY(mutex_) = 0;  // Counts calls of Send.
  std::span<uint8_t> destination_ ABSL_GUARDED_BY(mutex_);
  int64_t received_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Thread> threads_;
};

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_KV_RAW_STREAM_H_
