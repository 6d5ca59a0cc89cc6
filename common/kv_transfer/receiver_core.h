// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_RECEIVER_CORE_H_
#define BATON_COMMON_KV_TRANSFER_RECEIVER_CORE_H_

#include <span>

#include "common/kv_transfer/kv_receiver.h"

namespace baton {

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

  // Null: fenced or ended, drop the frame; the writer hears of it by Abort or from the router.
  std::shared_ptr<LandingZone> Find(const TransferId& transfer, int attempt) const;
  // Logs a frame that did not land.
  void OnFrameResult(const PeerId& peer, const TransferId& transfer, const absl::Status& status) const;
  // `in_order`: every frame that the manifest is about has arrived, or never will.
  void OnManifest(const PeerId& peer, const TransferId& transfer, int attempt, const Manifest& manifest, bool in_order) const;

 private:
  const TransportKind kind_;
  const KvReceiverOptions options_;
  LandingDirectory* const directory_;
  const KvReceiverEvents events_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_RECEIVER_CORE_H_
