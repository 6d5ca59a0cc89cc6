// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_KV_RAW_STREAM_H_
#define BATON_DEPLOY_BENCH_KV_RAW_STREAM_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/thread.h"
#include "common/kv_transfer/stream/socket.h"
#include "deploy/bench_kv/kv_bench_rig.h"

namespace baton::bench {

// Bytes over TCP to this machine: as many connections as a KV link has, written by one thread in turns of 1 MiB, read by one
// thread per connection into one buffer each, over and over.
class RawTcp final : public RawWay {
 public:
  static absl::StatusOr<std::unique_ptr<RawWay>> Create();
  ~RawTcp() override;
  absl::StatusOr<absl::Duration> Send(std::span<const uint8_t> source) override;

 private:
  RawTcp() = default;
  void Receive(int socket);

  std::vector<Fd> senders_, receivers_;
  Mutex mutex_;
  CondVar changed_;
  int64_t received_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Thread> threads_;
};

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_KV_RAW_STREAM_H_
