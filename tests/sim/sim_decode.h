// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SIM_SIM_DECODE_H_
#define BATON_TESTS_SIM_SIM_DECODE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/kv/block_allocator.h"
#include "common/kv_transfer/decode_handoff.h"
#include "common/kv_transfer/receiver_core.h"
#include "tests/sim/sim_link.h"
#include "tests/sim/sim_world.h"

namespace baton::testing {

// A decode worker of one thread: the handoff, the zones, the allocator and the receivers' core are the real ones; what
// decode_worker/decode_call_service does between them is done here. Everything that another thread would post to the engine
// waits in an inbox until the simulation lets the engine take it.
class SimDecode {
 public:
  struct Event {
    enum class Kind { kLanding, kLanded, kFailed, kStopped, kRefused, kFinished } kind;
    TransferId transfer;
    int attempt = 0;
    int first_missing = 0;
    WriteToken token = {};  // kLanding.
  };

  SimDecode(SimWorld* world, uint64_t incarnation, std::shared_ptr<KvPool> pool);

  uint64_t incarnation() const { return incarnation_; }
  const std::shared_ptr<KvPool>& pool() const { return pool_; }

  // ---- The router's stream. Answers in order.
  void Start(const TransferId& transfer, const std::vector<int32_t>& tokens);
  void Attempt(const TransferId& transfer, int attempt);
  void PrefillLocally(const TransferId& transfer, int attempt);
  void Stop(const TransferId& transfer);
  std::deque<Event> to_router;

  // ---- Transports.
  absl::StatusOr<LinkHello> OnHello(const std::shared_ptr<SimConnection>& connection);
  // The next message of some connection, or the next part of one. False when there is none.
  bool Deliver();
  void OnProcessEnded(const PeerId& peer) { core_shm_.events().on_writer_gone(peer); }
  // Before a writer's byte lands: whether the block is lent to that attempt.
  void CheckWrite(BlockId block, const TransferId& transfer, int attempt);
  std::optional<LinkGrant> LandingOf(const TransferId& transfer, int attempt) const;
  const std::vector<std::shared_ptr<SimConnection>>& connections() const { return connections_; }

  // ---- The engine. False when there was nothing to do.
  bool TakeFromInbox();
  bool Compute();
  void CheckTimeouts();

  // Empty when nothing is held any more.
  std::string Gauges() const;

 private:
  struct Call {
    TransferId transfer;
    std::vector<int32_t> tokens;
    std::vector<uint64_t> chain;
    std::unique_ptr<PrefixChain> hashes;
    DecodeHandoff handoff;
    std::vector<BlockId> blocks;
    int num_cached = 0, num_tokens = 0;
    std::shared_ptr<LandingZone> zone;
    bool pinned = false;
    std::map<int, std::vector<BlockId>> quarantined;
    std::map<int, PeerId> quarantined_for;
    bool over = false, running = false, computing = false;
    int steps_left = 0;
    MonotonicTime opened_at = absl::ZeroDuration();
  };
  struct Arrival {
    SimConnection::Message message;
    std::shared_ptr<LandingZone> zone;
    std::unique_ptr<FrameArrival> arrival;
    std::span<const iovec> into;
    PeerId peer;
  };

  void Post(std::function<void()> event) { inbox_.push_back(std::move(event)); }
  KvReceiverEvents Events(TransportKind kind);
  const ReceiverCore& CoreOf(TransportKind kind) const { return kind == TransportKind::kShm ? core_shm_ : core_tcp_; }
  Call* Find(const TransferId& transfer);

  void OnMessage(SimConnection& connection, SimConnection::Message message);
  void OnOpenMessage(SimConnection& connection, const ReceiverCore& core, const SimConnection::Message& message);
  void OnFrame(SimConnection& connection, SimConnection::Message message);
  void Continue(Arrival& arrival);
  void Answer(const PeerId& peer, SimConnection::Answer answer);

  void OnOpen(const TransferId& transfer, int attempt, const PeerId& peer);
  void OnManifest(const TransferId& transfer, int attempt, const PeerId& peer, absl::Status verified);
  void OnAborted(const TransferId& transfer, int attempt, const PeerId& peer);
  void NewAttempt(const TransferId& transfer, int attempt, bool local);

  bool CloseZone(Call& call);
  void Execute(Call& call, const DecodeHandoff::Actions& actions);
  void Do(Call& call, const DecodeHandoff::Action& action);
  void OpenZone(Call& call, int attempt);
  void Grant(Call& call, const DecodeHandoff::Action& action);
  void ReplaceBlocks(Call& call, int attempt, const PeerId& writer);
  void Quarantine(Call& call, int attempt, const PeerId& writer);
  void ReleaseQuarantine(Call& call, int attempt);
  void Run(Call& call);
  void CheckBytes(const Call& call);
  void Finish(Call& call);
  void Free(Call& call);
  void InsertPrefix(Call& call);
  void Unref(BlockId block);
  void Unlend(std::span<const BlockId> blocks);
  std::vector<BlockId> OwnBlocks(const Call& call) const;
  int QuarantinedFor(const PeerId& peer) const;
  void Say(Event::Kind kind, const Call& call, int attempt);
  void SayLast(Event::Kind kind, Call& call);
  void ForgetSettled();

  SimWorld* const world_;
  const uint64_t incarnation_;
  const std::shared_ptr<KvPool> pool_;
  BlockAllocator allocator_;
  LandingDirectory directory_;
  const ReceiverCore core_shm_, core_tcp_;
  std::deque<std::function<void()>> inbox_;
  std::map<TransferId, std::unique_ptr<Call>> calls_;
  std::map<PeerId, std::shared_ptr<SimConnection>> links_;  // The newest of each peer.
  std::vector<std::shared_ptr<SimConnection>> connections_;
  std::map<SimConnection*, Arrival> arrivals_;
  // Which attempt may write to a block.
  std::map<BlockId, std::pair<TransferId, int>> lent_;
  std::map<std::pair<TransferId, int>, std::vector<BlockId>> landings_;  // Ever told, for kAddressInLanding.
  std::map<std::string, PeerId> first_of_worker_;                        // For kWriterByAddress.
};

}  // namespace baton::testing

#endif  // BATON_TESTS_SIM_SIM_DECODE_H_
