// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SIM_SIM_PREFILL_H_
#define BATON_TESTS_SIM_SIM_PREFILL_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/kv/block_allocator.h"
#include "common/kv_transfer/link_sender.h"
#include "tests/sim/sim_link.h"
#include "tests/sim/sim_world.h"

namespace baton::testing {

// One process of a prefill worker: a pool, an allocator, and the real LinkSender, stepped. What
// prefill_worker/prefill_call_service does around it is done here.
class SimPrefill {
 public:
  struct Prefill {
    TransferId transfer;
    int attempt = 0;
    std::vector<int32_t> tokens;
    int first_missing = 0;
    uint64_t decode_incarnation = 0;
    WriteToken token = {};
  };
  using OnAnswer = std::function<void(const TransferId&, int attempt, const absl::Status&)>;

  SimPrefill(SimWorld* world, SimDirectory* directory, const std::string& name, uint64_t incarnation, TransportKind kind,
             OnAnswer on_answer);
  // Ends without a word: what it had under way on its links stays as it is.
  ~SimPrefill();

  const PeerId& peer() const { return peer_; }
  void Start(const Prefill& prefill);
  void Cancel(const TransferId& transfer, int attempt);
  // The next piece of some job's computation. False when there is none.
  bool Compute();
  // The sender's thread. False when it had nothing to do.
  bool StepSender() { return sender_->Step(); }
  // What is on its way to the links' reading threads.
  bool TakeAnswer();
  void CutLink();

  std::string Gauges() const;

 private:
  struct Job {
    Prefill prefill;
    std::vector<uint64_t> chain;
    std::vector<BlockId> blocks;
    std::shared_ptr<KvSender::Transfer> transfer;
    int token = 0, layer = 0, chunk_end = 0;
    bool started = false, finished = false, done = false;
  };

  void OnDone(Job& job, const absl::Status& status);
  void Answer(const Prefill& prefill, const absl::Status& status) { on_answer_(prefill.transfer, prefill.attempt, status); }

  SimWorld* const world_;
  const PeerId peer_;
  const OnAnswer on_answer_;
  const std::unique_ptr<KvPool> pool_;
  BlockAllocator allocator_;
  bool dead_ = false;
  std::vector<std::unique_ptr<Job>> jobs_;
  SimDirectory* const directory_;
  std::unique_ptr<LinkSender> sender_;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_SIM_SIM_PREFILL_H_
