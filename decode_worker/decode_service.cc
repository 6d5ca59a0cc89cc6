// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/decode_service.h"

#include <utility>
#include <vector>

#include "common/kv_transfer/grpc/grpc_kv_receiver.h"
#include "decode_worker/decode_call_service.h"

namespace baton {

DecodeService::DecodeService(WorkerRuntime* runtime) : runtime_(runtime) {
  receiver_ = std::make_unique<GrpcKvReceiver>(runtime->id(), runtime->incarnation(), runtime->compatibility(),
                                               runtime->pool()->layout().block_size, &directory_, ReceiverEvents());
}

DecodeService::~DecodeService() = default;

grpc::Service* DecodeService::kv_link_service() { return receiver_.get(); }

grpc::ServerBidiReactor<internal::DecodeRequest, internal::DecodeEvent>* DecodeService::Decode(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<DecodeCall>(this);
  return call->Open()->reactor();
}

KvReceiverEvents DecodeService::ReceiverEvents() {
  KvReceiverEvents events;
  events.on_manifest = [this](const TransferId& transfer, int attempt, const PeerId& peer, const absl::Status& verified,
                              const LandingStats& stats) {
    runtime_->engine()->Post([this, transfer, attempt, peer, verified, stats](EngineCore& core) {
      const auto it = calls_.find(transfer);
      if (it == calls_.end()) return;
      const std::shared_ptr<DecodeCall> call = it->second;  // The call may leave the map.
      call->OnManifest(core, attempt, peer, verified, stats);
    });
  };
  events.on_open = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    runtime_->engine()->Post([this, transfer, attempt, peer](EngineCore& core) {
      const auto it = calls_.find(transfer);
      if (it != calls_.end()) it->second->OnOpen(core, attempt, peer);
    });
  };
  events.on_aborted = [this](const TransferId& transfer, std::optional<int> attempt, const PeerId& peer) {
    runtime_->engine()->Post([this, transfer, attempt, peer](EngineCore& core) {
      const auto it = calls_.find(transfer);
      if (it == calls_.end()) return;
      const std::shared_ptr<DecodeCall> call = it->second;
      call->OnWriterGone(core, attempt, peer);
    });
  };
  events.on_link_closed = [this](const PeerId& peer) {
    runtime_->engine()->Post([this, peer](EngineCore& core) {
      std::vector<std::shared_ptr<DecodeCall>> calls;
      for (const auto& [transfer, call] : calls_) calls.push_back(call);
      for (const auto& call : calls) call->OnLinkClosed(core, peer);
    });
  };
  return events;
}

}  // namespace baton
