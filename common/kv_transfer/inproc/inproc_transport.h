// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_INPROC_INPROC_TRANSPORT_H_
#define BATON_COMMON_KV_TRANSFER_INPROC_INPROC_TRANSPORT_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/call_gate.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/receiver_core.h"

namespace baton {

// Two workers in one process: the writer's thread calls the receiver, and a frame is copied once, from pool to pool, after it
// was checked. Two-sided: nothing is written that the zone has not let in.
class InprocKvReceiver final : public KvReceiver {
 public:
  // Listens under a name of its own until Stop. `directory` outlives the receiver.
  InprocKvReceiver(KvReceiverOptions options, LandingDirectory* directory, KvReceiverEvents events);
  // As Stop.
  ~InprocKvReceiver() override;

  TransportKind kind() const override { return TransportKind::kInproc; }
  TransportOffer offer() const override;
  void Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant& grant) override;
  void Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) override;
  void Abort(const PeerId& peer, const TransferId& transfer, int attempt) override;
  void Stop() override;

 private:
  friend class InprocKvLink;
  // What each end knows of the other, which may be gone: its gate is open while it is there.
  struct Endpoint {
    InprocKvReceiver* receiver = nullptr;
    CallGate gate;
  };
  struct Writer {
    KvLink::Events events;
    CallGate gate;
  };
  static std::shared_ptr<Endpoint> Lookup(const std::string& address);
  void Tell(const PeerId& peer, const std::function<void(const KvLink::Events&)>& say) const;
  void Remove(const PeerId& peer, const std::shared_ptr<Writer>& writer);

  const ReceiverCore core_;
  const std::string address_;
  const std::shared_ptr<Endpoint> endpoint_;
  mutable Mutex mutex_;
  std::map<PeerId, std::shared_ptr<Writer>> writers_ ABSL_GUARDED_BY(mutex_);
};

class InprocKvLink final : public KvLink {
 public:
  // `address` as the receiver's offer has it.
  InprocKvLink(std::string address, Events events);
  ~InprocKvLink() override;

  TransportKind kind() const override { return TransportKind::kInproc; }
  absl::StatusOr<LinkHello> Open(const LinkHello& self, absl::Duration timeout) override;
  bool alive() const override;
  absl::Status SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) override;
  absl::Status SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  absl::Status Flush(const Interrupted&) override { return absl::OkStatus(); }
  absl::Status SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                            const Interrupted& interrupted) override;
  void SendAborted(const TransferId& transfer, int attempt) override;
  void Settle() override {}
  void Close(absl::Duration flush_timeout) override;

 private:
  absl::Status Broken() const;

  const std::string address_;
  const std::shared_ptr<InprocKvReceiver::Writer> writer_;
  std::shared_ptr<InprocKvReceiver::Endpoint> endpoint_;  // Null before Open and after Close.
  PeerId self_;
  LinkAdmissions admissions_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_INPROC_INPROC_TRANSPORT_H_
