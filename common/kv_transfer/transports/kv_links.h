// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSPORTS_KV_LINKS_H_
#define BATON_COMMON_KV_TRANSFER_TRANSPORTS_KV_LINKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/kv_transfer/kv_sender.h"
#include "common/kv_transfer/transport_kind.h"

namespace baton {

// The process that reserved blocks for a transfer, and how it can be reached.
struct KvPeer {
  std::string worker;
  uint64_t incarnation = 0;
  std::vector<TransportOffer> offers;
};

struct KvLinksOptions {
  std::vector<TransportKind> kinds;  // What this process can send by.
  absl::Duration broken_for = absl::Seconds(30);  // So long a transport that failed is not tried again.
  size_t max_links = 64;  // Each is a connection and a thread or two.
  std::function<std::shared_ptr<KvSender>(const TransportOffer&)> make_sender;
  std::function<void(TransportKind)> on_fallback;  // A transport was found broken. Any thread. May be null.
};

// The links of one process to those that it sends KV, and which transport each pair uses: the best that both have and that has
// not failed lately. Thread-safe.
class KvLinks {
 public:
  // `clock` outlives it.
  KvLinks(KvLinksOptions options, const Clock* clock);
  // As Stop.
  ~KvLinks();

  // The sender to use for a request now; made at first use and kept. Past the bound, links that no call uses are closed, the
  // longest unused first. When every common transport is broken, the one that has been for longest.
  //   UNAVAILABLE  the two have no transport in common; names both sides' kinds.
  absl::StatusOr<std::shared_ptr<KvSender>> Choose(const KvPeer& peer);

  // How a transfer by `kind` to `peer` ended. A failure that is the transport's makes the next request use the next best.
  void Report(const KvPeer& peer, TransportKind kind, const absl::Status& status);

  // Which transport each peer was last sent by, and why not by a better one.
  struct Used {
    TransportKind kind;
    std::string fallback;  // Empty: it is the best.
    uint64_t last_use = 0;
  };
  std::map<std::string, Used> used() const;

  // Stops every sender. Idempotent.
  void Stop();

 private:
  struct Link {
    std::shared_ptr<KvSender> sender;
    uint64_t last_use = 0;
  };
  using Address = std::pair<TransportKind, std::string>;
  struct Broken {
    uint64_t incarnation = 0;  // Of the peer: another process there is another matter.
    MonotonicTime until = absl::ZeroDuration();
    std::string why;
  };

  const Broken* BrokenLocked(const TransportOffer& offer, uint64_t incarnation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseUnusedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const KvLinksOptions options_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  std::map<Address, Link> links_ ABSL_GUARDED_BY(mutex_);
  std::map<Address, Broken> broken_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Used> used_ ABSL_GUARDED_BY(mutex_);  // By worker.
  uint64_t use_counter_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread closer_ ABSL_GUARDED_BY(mutex_);  // Closes links: that waits for the peer.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSPORTS_KV_LINKS_H_
