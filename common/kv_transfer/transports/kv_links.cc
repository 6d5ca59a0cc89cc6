// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/transports/kv_links.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"

namespace baton {
namespace {

// A failure of the way, not of the request, its owner, or what the two workers are.
bool IsTransportFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsDataLoss(status);
}

}  // namespace

KvLinks::KvLinks(KvLinksOptions options, const Clock* clock) : options_(std::move(options)), clock_(clock) {}

KvLinks::~KvLinks() { Stop(); }

absl::StatusOr<std::shared_ptr<KvSender>> KvLinks::Choose(const KvPeer& peer) {
  const std::vector<TransportOffer> common = CommonTransports(options_.kinds, peer.offers);
  if (common.empty()) {
    std::string own, theirs;
    for (const TransportKind kind : options_.kinds) absl::StrAppend(&own, own.empty() ? "" : ",", TransportName(kind));
    for (const TransportOffer& offer : peer.offers) {
      absl::StrAppend(&theirs, theirs.empty() ? "" : ",", TransportName(offer.kind));
    }
    return absl::UnavailableError(absl::StrCat("no KV transport in common: local ", own, "; ", peer.worker, " offers ", theirs,
                                               ", here or on another machine"));
  }
  MutexLock lock(&mutex_);
  const TransportOffer* chosen = nullptr;
  MonotonicTime chosen_until = absl::InfiniteDuration();
  std::string why;
  for (const TransportOffer& offer : common) {
    const Broken* broken = BrokenLocked(offer, peer.incarnation);
    if (broken != nullptr) absl::StrAppend(&why, why.empty() ? "" : "; ", TransportName(offer.kind), ": ", broken->why);
    const MonotonicTime until = broken == nullptr ? absl::ZeroDuration() : broken->until;
    if (until >= chosen_until) continue;
    chosen = &offer;
    chosen_until = until;
    if (broken == nullptr) break;
  }
  ++use_counter_;
  used_[peer.worker] = {chosen->kind, chosen == &common.front() ? "" : why, use_counter_};
  while (used_.size() > options_.max_links) {
    used_.erase(std::min_element(used_.begin(), used_.end(),
                                 [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; }));
  }
  Link& link = links_[{chosen->kind, chosen->address}];
  link.last_use = use_counter_;
  if (link.sender == nullptr) link.sender = options_.make_sender(*chosen);
  std::shared_ptr<KvSender> sender = link.sender;
  CloseUnusedLocked();
  return sender;
}

const KvLinks::Broken* KvLinks::BrokenLocked(const TransportOffer& offer, uint64_t incarnation) const {
  const auto it = broken_.find({offer.kind, offer.address});
  if (it == broken_.end() || it->second.incarnation != incarnation || it->second.until <= clock_->Now()) return nullptr;
  return &it->second;
}

void KvLinks::CloseUnusedLocked() {
  while (links_.size() > options_.max_links) {
    auto oldest = links_.end();
    for (auto it = links_.begin(); it != links_.end(); ++it) {
      if (it->second.sender.use_count() > 1) continue;  // A call's, or the one just found.
      if (oldest == links_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
    }
    if (oldest == links_.end()) return;
    closer_ = Thread("kv-close", [old = std::move(oldest->second.sender)] { old->Stop(); });
    links_.erase(oldest);
  }
}

void KvLinks::Report(const KvPeer& peer, TransportKind kind, const absl::Status& status) {
  if (!status.ok() && !IsTransportFailure(status)) return;
  const std::vector<TransportOffer> common = CommonTransports(options_.kinds, peer.offers);
  const auto offer = std::find_if(common.begin(), common.end(), [kind](const auto& o) { return o.kind == kind; });
  if (offer == common.end()) return;
  const auto next = offer + 1;
  {
    MutexLock lock(&mutex_);
    const MonotonicTime now = clock_->Now();
    std::erase_if(broken_, [now](const auto& entry) { return entry.second.until <= now; });
    if (status.ok()) {
      broken_.erase({kind, offer->address});
      return;
    }
    broken_[{kind, offer->address}] = {peer.incarnation, now + options_.broken_for, std::string(status.message())};
  }
  BATON_LOG(WARNING) << "KV transport " << TransportName(kind) << " to " << peer.worker << " failed: " << status.message()
                     << (next == common.end() ? "; there is none behind it"
                                              : absl::StrCat("; for the next ", absl::FormatDuration(options_.broken_for), " by ",
                                                             TransportName(next->kind)));
  if (options_.on_fallback && next != common.end()) options_.on_fallback(kind);
}

std::map<std::string, KvLinks::Used> KvLinks::used() const {
  MutexLock lock(&mutex_);
  return used_;
}

void KvLinks::Stop() {
  std::map<Address, Link> links;
  {
    MutexLock lock(&mutex_);
    links.swap(links_);
    closer_.Join();
  }
  for (const auto& [address, link] : links) link.sender->Stop();
}

}  // namespace baton
