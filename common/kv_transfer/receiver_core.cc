// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/receiver_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/layout_conversion.h"

namespace baton {

ReceiverCore::ReceiverCore(TransportKind kind, KvReceiverOptions options, LandingDirectory* directory, KvReceiverEvents events)
    : kind_(kind), options_(std::move(options)), directory_(directory), events_(std::move(events)) {}

// Who writes into the pool itself writes what the pool has.
LinkHello ReceiverCore::hello() const {
  LinkHello hello{{options_.worker, options_.incarnation, kind_}, options_.compatibility};
  const TransportInfo& transport = TransportOf(kind_);
  std::string& wire = hello.compatibility.kv_wire_layout;
  if (!wire.empty() && !transport.one_sided && !transport.needs_device) hello.compatibility.kv_layout = wire;
  wire.clear();
  return hello;
}

absl::Status ReceiverCore::CheckHello(const LinkHello& hello) const {
  const KvCompatibility& local = options_.compatibility;
  if (hello.compatibility.model_fingerprint != local.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("model mismatch: peer ", hello.compatibility.model_fingerprint,
                                                      ", local ", local.model_fingerprint));
  }
  BATON_ASSIGN_OR_RETURN(const KvLayout layout, ParseKvLayout(hello.compatibility.kv_layout));
  return CheckConvertible(layout, options_.pool->layout());
}

std::shared_ptr<LandingZone> ReceiverCore::Find(const TransferId& transfer, int attempt) const {
  return directory_->Find(transfer, attempt);
}

void ReceiverCore::OnFrameResult(const PeerId& peer, const TransferId& transfer, const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return;
  BATON_LOG(WARNING) << "transfer " << transfer.ToString() << " from " << peer.worker << " by "
                     << TransportName(kind_) << ": " << status.message();
}

void ReceiverCore::OnManifest(const PeerId& peer, const TransferId& transfer, int attempt, const Manifest& manifest,
                              bool in_order) const {
  const auto zone = Find(transfer, attempt);
  LandingStats stats;
  if (zone != nullptr && !in_order) {
    zone->VerifyWhenComplete(manifest, [this, peer, transfer, attempt](const absl::Status& verified, const LandingStats& late) {
      events_.on_manifest(transfer, attempt, peer, verified, late);
    });
    return;
  }
  absl::Status verified = absl::CancelledError("attempt is not current");
  if (zone != nullptr) verified = zone->Verify(manifest, &stats);
  events_.on_manifest(transfer, attempt, peer, verified, stats);
}

}  // namespace baton
