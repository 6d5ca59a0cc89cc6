// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_HISTORY_SENDER_H_
#define BATON_DECODE_WORKER_HISTORY_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/engine/engine_core.h"
#include "common/kv_transfer/kv_precision.h"
#include "common/kv_transfer/kv_sender.h"
#include "common/kv_transfer/transports/kv_links.h"
#include "common/worker/worker_runtime.h"

namespace baton {

// Sends the beginning of a landing's prompt, which is in this worker's prefix cache, to the prefill worker that computes the rest: a
// transfer in the other direction. The sender has references of its own on the blocks until it has stopped reading them, which is
// what makes its manifest worth something. One per Decode stream. Engine thread.
class HistorySender {
 public:
  // What the pointers point to outlives everything that was started.
  HistorySender(WorkerRuntime* runtime, KvLinks* links) : runtime_(runtime), links_(links) {}

  struct Job {
    TransferId transfer;
    int attempt = 0;
    KvPeer peer;
    std::vector<BlockId> blocks;  // Whole and referenced by the caller: the first ones of the prompt.
    int first_token = 0;
    int num_tokens = 0;  // In `blocks`: all of them.
    uint64_t token_hash = 0;
    WriteToken token;  // Of the attempt, as the prefill worker drew it.
    KvPrecision held_in;  // Since it was computed, here or elsewhere: the manifest says it, and the prefill worker decides.
    std::function<void(const absl::Status&)> on_failed;  // Once, unless it was sent.
  };
  // Cancels what was begun before. Sending needs the job's blocks only, not this object.
  void Send(EngineCore& core, Job job);
  void Cancel();

 private:
  WorkerRuntime* const runtime_;
  KvLinks* const links_;
  std::shared_ptr<KvSender> sender_;
  std::shared_ptr<KvSender::Transfer> transfer_;
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_HISTORY_SENDER_H_
