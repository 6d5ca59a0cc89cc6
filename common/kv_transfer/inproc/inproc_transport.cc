// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/inproc/inproc_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

template <class Endpoint>
struct Hub {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Endpoint>> endpoints ABSL_GUARDED_BY(mutex);
};

template <class Endpoint>
Hub<Endpoint>& TheHub() {
  static auto* const hub = new Hub<Endpoint>;
  return *hub;
}

}  // namespace

// ---- The receiver.

InprocKvReceiver::InprocKvReceiver(KvReceiverOptions options, LandingDirectory* directory, KvReceiverEvents events)
    : core_(TransportKind::kInproc, std::move(options), directory, std::move(events)),
      address_(NewId("inproc")),
      endpoint_(std::make_shared<Endpoint>()) {
  endpoint_->receiver = this;
  Hub<Endpoint>& hub = TheHub<Endpoint>();
  MutexLock lock(&hub.mutex);
  hub.endpoints[address_] = endpoint_;
}

InprocKvReceiver::~InprocKvReceiver() { Stop(); }

TransportOffer InprocKvReceiver::offer() const {
  return {TransportKind::kInproc, TransportHost(TransportKind::kInproc), address_};
}

void InprocKvReceiver::Stop() {
  {
    Hub<Endpoint>& hub = TheHub<Endpoint>();
    MutexLock lock(&hub.mutex);
    hub.endpoints.erase(address_);
  }
  endpoint_->gate.Close();
  std::map<PeerId, std::shared_ptr<Writer>> writers;
  {
    MutexLock lock(&mutex_);
    writers.swap(writers_);
  }
  for (const auto& [peer, writer] : writers) {
    if (CallGate::Pass pass(&writer->gate); pass && writer->events.on_closed) writer->events.on_closed();
  }
}

std::shared_ptr<InprocKvReceiver::Endpoint> InprocKvReceiver::Lookup(const std::string& address) {
  Hub<Endpoint>& hub = TheHub<Endpoint>();
  MutexLock lock(&hub.mutex);
  const auto it = hub.endpoints.find(address);
  return it == hub.endpoints.end() ? nullptr : it->second;
}

void InprocKvReceiver::Tell(const PeerId& peer, const std::function<void(const KvLink::Events&)>& say) const {
  std::shared_ptr<Writer> writer;
  {
    MutexLock lock(&mutex_);
    const auto it = writers_.find(peer);
    if (it == writers_.end()) return;
    writer = it->second;
  }
  if (CallGate::Pass pass(&writer->gate); pass) say(writer->events);
}

void InprocKvReceiver::Remove(const PeerId& peer, const std::shared_ptr<Writer>& writer) {
  {
    MutexLock lock(&mutex_);
    const auto it = writers_.find(peer);
    if (it == writers_.end() || it->second != writer) return;
    writers_.erase(it);
  }
  core_.events().on_link_closed(peer);
}

void InprocKvReceiver::Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant& grant) {
  Tell(peer, [&](const KvLink::Events& events) { events.on_grant(transfer, attempt, grant); });
}

void InprocKvReceiver::Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) {
  Tell(peer, [&](const KvLink::Events& events) { events.on_deny(transfer, attempt, why); });
}

void InprocKvReceiver::Abort(const PeerId& peer, const TransferId& transfer, int attempt) {
  Tell(peer, [&](const KvLink::Events& events) { events.on_abort(transfer, attempt); });
}

// ---- The link.

InprocKvLink::InprocKvLink(std::string address, Events events)
    : address_(std::move(address)), writer_(std::make_shared<InprocKvReceiver::Writer>()) {
  writer_->events = std::move(events);
}

InprocKvLink::~InprocKvLink() { Close(absl::ZeroDuration()); }

absl::StatusOr<LinkHello> InprocKvLink::Open(const LinkHello& self, absl::Duration) {
  endpoint_ = InprocKvReceiver::Lookup(address_);
  if (endpoint_ == nullptr) return absl::UnavailableError("nobody has that name in this process");
  CallGate::Pass pass(&endpoint_->gate);
  if (!pass) return Broken();
  InprocKvReceiver& receiver = *endpoint_->receiver;
  BATON_RETURN_IF_ERROR(receiver.core_.CheckHello(self));
  self_ = self.self;
  bool replaced;
  {
    MutexLock lock(&receiver.mutex_);
    replaced = !receiver.writers_.insert_or_assign(self_, writer_).second;
  }
  if (replaced) receiver.core_.events().on_link_closed(self_);
  return receiver.core_.hello();
}

bool InprocKvLink::alive() const { return endpoint_ != nullptr && !endpoint_->gate.closed(); }

absl::Status InprocKvLink::Broken() const {
  return absl::UnavailableError(absl::StrCat("KV link to ", address_, " broke: the receiver has stopped"));
}

absl::Status InprocKvLink::SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) {
  CallGate::Pass pass(&endpoint_->gate);
  if (!pass) return Broken();
  InprocKvReceiver& receiver = *endpoint_->receiver;
  const absl::Status status = receiver.core_.OnOpen(admissions_, self_, transfer, attempt, token);
  if (!status.ok()) receiver.Deny(self_, transfer, attempt, status);
  return absl::OkStatus();
}

absl::Status InprocKvLink::SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  CallGate::Pass pass(&endpoint_->gate);
  if (!pass) return Broken();
  const ReceiverCore& core = endpoint_->receiver->core_;
  if (const auto zone = core.Find(admissions_, frame.transfer, frame.attempt); zone != nullptr) {
    core.OnFrameResult(self_, frame.transfer, zone->Write(frame.header, frame.payload));
  }
  return absl::OkStatus();
}

absl::Status InprocKvLink::SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                                        const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  CallGate::Pass pass(&endpoint_->gate);
  if (!pass) return Broken();
  endpoint_->receiver->core_.OnManifest(admissions_, self_, transfer, attempt, manifest, /*in_order=*/true);
  return absl::OkStatus();
}

void InprocKvLink::SendAborted(const TransferId& transfer, int attempt) {
  if (CallGate::Pass pass(&endpoint_->gate); pass) {
    endpoint_->receiver->core_.OnAborted(admissions_, self_, transfer, attempt);
  }
}

void InprocKvLink::Close(absl::Duration) {
  if (endpoint_ == nullptr) return;
  writer_->gate.Close();
  if (CallGate::Pass pass(&endpoint_->gate); pass) endpoint_->receiver->Remove(self_, writer_);
  endpoint_ = nullptr;
}

}  // namespace baton
