// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SIM_SIM_LINK_H_
#define BATON_TESTS_SIM_SIM_LINK_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/receiver_core.h"
#include "tests/sim/sim_world.h"

namespace baton::testing {

class SimDecode;

// One connection between a writer and a decode worker: what is on its way in both directions. The link's end puts messages
// in, the decode worker takes them out when the simulation says so.
struct SimConnection {
  struct Message {
    enum class Kind { kOpen, kFrame, kPlaced, kManifest, kAborted } kind;
    TransferId transfer;
    int attempt = 0;
    FrameHeader header = {};
    std::vector<uint8_t> bytes = {};
    Manifest manifest = {};
    WriteToken token = {};
  };
  using Answer = std::function<void(const KvLink::Events&)>;

  PeerId peer;
  LinkAdmissions admissions;
  uint64_t decode_incarnation = 0;
  bool in_order = true;             // False: frames and the rest take different ways.
  std::deque<Message> to_decode;
  std::deque<Answer> to_writer;
  bool cut = false;                 // Decode's end is gone; the writer does not know yet, and what it sends is lost.
  bool broken = false;              // The writer knows: nothing more is put in, in either direction.
  bool ended = false;               // The decode worker has seen the end of it.
  std::optional<KvLink::Events> events;  // The writer's, until it closes.
  bool told_closed = false;
};

// Which decode worker is there now, and whether it still is.
class SimDirectory {
 public:
  virtual ~SimDirectory() = default;
  virtual SimDecode* decode() = 0;  // The one that lives.
  // Lets decode do something while a writer is in the middle of a call.
  virtual void Interleave() = 0;
  // Ever made, to whichever decode worker.
  std::vector<std::shared_ptr<SimConnection>> connections;
};

// The writer's end. One-sided kinds write into decode's pool themselves where they have a grant.
class SimKvLink final : public KvLink {
 public:
  // Fails when `ended(transfer, attempt)` and yet a byte of that job is read.
  SimKvLink(SimWorld* world, SimDirectory* directory, TransportKind kind, Events events,
            std::function<bool(const TransferId&, int)> job_ended);
  ~SimKvLink() override;

  TransportKind kind() const override { return kind_; }
  absl::StatusOr<LinkHello> Open(const LinkHello& self, absl::Duration timeout) override;
  bool alive() const override { return connection_ != nullptr && !connection_->broken; }
  absl::Status SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) override;
  absl::Status SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  absl::Status Flush(const Interrupted& interrupted) override;
  absl::Status SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                            const Interrupted& interrupted) override;
  void SendAborted(const TransferId& transfer, int attempt) override;
  void Settle() override;
  void Close(absl::Duration flush_timeout) override;

 private:
  struct Unsent {
    SimConnection::Message message;
    std::vector<std::span<const uint8_t>> pieces;  // Still the writer's memory.
  };
  struct Copy {
    TransferId transfer;
    int attempt;
    int layer;
    BlockId block;
    int num_tokens;
    std::vector<uint8_t> bytes;
  };
  absl::Status Broken() const;
  absl::Status Place(const OutgoingFrame& frame);
  void Write(const Copy& copy);
  void Put(SimConnection::Message message);
  void Own(bool send);

  SimWorld* const world_;
  SimDirectory* const directory_;
  const TransportKind kind_;
  Events events_;
  const std::function<bool(const TransferId&, int)> job_ended_;
  std::shared_ptr<SimConnection> connection_;
  std::shared_ptr<KvPool> mapping_;  // Decode's pool; lives as long as anybody maps it.
  std::vector<Unsent> unsent_;
  std::vector<Copy> delayed_;  // For kAckBeforeLastCopy.
};

}  // namespace baton::testing

#endif  // BATON_TESTS_SIM_SIM_LINK_H_
