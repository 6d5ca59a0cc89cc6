// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_RECEIVER_CORE_H_
#define BATON_COMMON_KV_TRANSFER_RECEIVER_CORE_H_

#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/mutex.h"
#include "common/kv_transfer/kv_receiver.h"

namespace baton {

// The attempts that one link has shown the token of: the link, not whoever calls himself like its writer. Thread-safe, as a link may
// have several connections.
class LinkAdmissions {
 public:
  void Add(const TransferId& transfer, int attempt);
  bool Has(const TransferId& transfer, int attempt) const;
  // The writer has ended it. `late_frames`: those that were sent before may still come, over other connections.
  void End(const TransferId& transfer, int attempt, bool late_frames);

 private:
  using Name = std::pair<TransferId, int>;
  mutable Mutex mutex_;
  absl::flat_hash_set<Name> admitted_ ABSL_GUARDED_BY(mutex_);
  std::deque<Name> ended_ ABSL_GUARDED_BY(mutex_);  // Of admitted_, those that late frames are waited for.
};

// What every transport's receiver does with what arrives. Thread-safe; calls of one link come in its order.
class ReceiverCore {
 public:
  // `directory` outlives the core.
  ReceiverCore(TransportKind kind, KvReceiverOptions options, LandingDirectory* directory, KvReceiverEvents events);

  TransportKind kind() const { return kind_; }
  const KvReceiverOptions& options() const { return options_; }
  const KvReceiverEvents& events() const { return events_; }

  LinkHello hello() const;
  // OK when the writer's KV can land here.
  //   FAILED_PRECONDITION  model or layout geometry differ; names both values. INVALID_ARGUMENT  a layout that is none.
  absl::Status CheckHello(const LinkHello& hello) const;

  // A writer announces itself. OK: the worker is told, and answers by Grant or Deny.
  //   ABORTED  no such token, or no such attempt to hold it against: to be denied by the caller. The worker hears nothing of it.
  absl::Status OnOpen(LinkAdmissions& link, const PeerId& peer, const TransferId& transfer, int attempt, const WriteToken& token) const;
  // Null: fenced, ended or not admitted, drop the frame; the writer hears of it by Abort or Deny, or from the router.
  std::shared_ptr<LandingZone> Find(const LinkAdmissions& link, const TransferId& transfer, int attempt) const;
  // Logs a frame that did not land.
  void OnFrameResult(const PeerId& peer, const TransferId& transfer, const absl::Status& status) const;
  // `in_order`: every frame that the manifest is about has arrived, or never will.
  void OnManifest(LinkAdmissions& link, const PeerId& peer, const TransferId& transfer, int attempt, const Manifest& manifest,
                  bool in_order) const;
  void OnAborted(LinkAdmissions& link, const PeerId& peer, const TransferId& transfer, int attempt) const;

 private:
  bool Admits(const LinkAdmissions& link, const TransferId& transfer, int attempt) const;

  const TransportKind kind_;
  const KvReceiverOptions options_;
  LandingDirectory* const directory_;
  const KvReceiverEvents events_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_RECEIVER_CORE_H_
