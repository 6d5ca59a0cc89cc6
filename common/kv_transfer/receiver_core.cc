// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/receiver_core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/layout_conversion.h"

namespace baton {
namespace {

constexpr size_t kMaxEnded = 256;

}  // namespace

void LinkAdmissions::Add(const TransferId& transfer, int attempt) {
  MutexLock lock(&mutex_);
  admitted_.insert({transfer, attempt});
}

bool LinkAdmissions::Has(const TransferId& transfer, int attempt) const {
  MutexLock lock(&mutex_);
  return admitted_.contains({transfer, attempt});
}

void LinkAdmissions::End(const TransferId& transfer, int attempt, bool late_frames) {
  MutexLock lock(&mutex_);
  if (!late_frames) {
    admitted_.erase({transfer, attempt});
    return;
  }
  ended_.push_back({transfer, attempt});
  if (ended_.size() <= kMaxEnded) return;
  admitted_.erase(ended_.front());
  ended_.pop_front();
}

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

// Against the zone that is open now: an attempt whose zone is not there yet would be granted to whoever asks for it.
absl::Status ReceiverCore::OnOpen(LinkAdmissions& link, const PeerId& peer, const TransferId& transfer, int attempt,
                                  const WriteToken& token) const {
  const auto zone = directory_->Find(transfer, attempt);
  if (zone == nullptr && options_.require_tokens) {
    return absl::AbortedError(absl::StrCat("attempt ", attempt, " of transfer ", transfer.ToString(), " is not landing here"));
  }
  if (zone != nullptr && !zone->token().Matches(token) && (options_.require_tokens || !token.empty())) {
    BATON_LOG(WARNING) << "transfer " << transfer.ToString() << " attempt " << attempt << ": " << peer.worker << " by " << TransportName(kind_)
                       << " was denied, it has " << (token.empty() ? "no token" : "another token than was drawn");
    if (events_.on_denied) events_.on_denied(peer);
    return absl::AbortedError(absl::StrCat("attempt ", attempt, " of transfer ", transfer.ToString(), " was given to another writer"));
  }
  link.Add(transfer, attempt);
  events_.on_open(transfer, attempt, peer);
  return absl::OkStatus();
}

bool ReceiverCore::Admits(const LinkAdmissions& link, const TransferId& transfer, int attempt) const {
  return !options_.require_tokens || link.Has(transfer, attempt);
}

std::shared_ptr<LandingZone> ReceiverCore::Find(const LinkAdmissions& link, const TransferId& transfer, int attempt) const {
  return Admits(link, transfer, attempt) ? directory_->Find(transfer, attempt) : nullptr;
}

void ReceiverCore::OnAborted(LinkAdmissions& link, const PeerId& peer, const TransferId& transfer, int attempt) const {
  if (!Admits(link, transfer, attempt)) return;
  link.End(transfer, attempt, /*late_frames=*/false);
  events_.on_aborted(transfer, attempt, peer);
}

void ReceiverCore::OnFrameResult(const PeerId& peer, const TransferId& transfer, const absl::Status& status) const {
  if (status.ok() || absl::IsCancelled(status)) return;
  BATON_LOG(WARNING) << "transfer " << transfer.ToString() << " from " << peer.worker << " by "
                     << TransportName(kind_) << ": " << status.message();
}

void ReceiverCore::OnManifest(LinkAdmissions& link, const PeerId& peer, const TransferId& transfer, int attempt,
                              const Manifest& manifest, bool in_order) const {
  if (!Admits(link, transfer, attempt)) return;
  link.End(transfer, attempt, /*late_frames=*/!in_order);
  const auto zone = directory_->Find(transfer, attempt);
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
