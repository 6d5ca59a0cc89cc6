// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/history_sender.h"

#include <span>
#include <utility>

namespace baton {
namespace {

// The attempt has moved on, or the reader had enough: nothing failed on the way.
const char* ResultOf(const absl::Status& sent) {
  if (sent.ok()) return "ok";
  return absl::IsCancelled(sent) || absl::IsAborted(sent) ? "cancelled" : "failed";
}

}  // namespace

void HistorySender::Send(EngineCore& core, Job job) {
  Cancel();
  auto sender = links_->Choose(job.peer);
  if (!sender.ok()) return job.on_failed(sender.status());
  sender_ = *std::move(sender);
  core.RetainBlocks(job.blocks);
  const int num_layers = core.model().config().num_layers;
  const std::span<const BlockId> blocks = job.blocks;
  core.pool()->ToHost(0, num_layers, blocks.subspan(static_cast<size_t>(job.first_token / core.pool()->layout().block_size)));

  SendJob send;
  send.transfer = job.transfer;
  send.attempt = job.attempt;
  send.peer_incarnation = job.peer.incarnation;
  send.first_token = job.first_token;
  send.num_tokens = job.num_tokens;
  send.token = std::move(job.token);
  // The link is in use until the engine has heard of it.
  send.on_done = [runtime = runtime_, links = links_, sender = sender_, peer = job.peer, blocks = job.blocks,
                  on_failed = std::move(job.on_failed)](const absl::Status& status, const SendStats& stats) {
    runtime->engine()->Post([=](EngineCore& engine_core) {
      engine_core.ReleaseBlocks(blocks);
      links->Report(peer, sender->kind(), status);
      runtime->CountHistory(TransportName(sender->kind()), ResultOf(status), stats.payload_bytes);
      if (!status.ok()) on_failed(status);
    });
  };
  transfer_ = sender_->Begin(std::move(send));
  sender_->SetBlocks(transfer_, std::move(job.blocks));
  sender_->Push(transfer_, 0, num_layers, job.first_token, job.num_tokens);
  Manifest manifest;
  manifest.model_fingerprint = runtime_->model().fingerprint();
  manifest.numerics = job.held_in.AddTo(runtime_->compatibility().numerics);
  manifest.first_token = job.first_token;
  manifest.num_tokens = job.num_tokens;
  manifest.token_hash = job.token_hash;
  sender_->Finish(transfer_, std::move(manifest));
}

void HistorySender::Cancel() {
  if (transfer_ != nullptr) sender_->Cancel(transfer_);
  transfer_ = nullptr;
  sender_ = nullptr;
}

}  // namespace baton
