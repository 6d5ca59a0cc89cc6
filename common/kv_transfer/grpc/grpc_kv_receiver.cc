// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/grpc/grpc_kv_receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/kv_transfer/grpc/wire.h"

namespace baton {

GrpcKvReceiver::GrpcKvReceiver(std::string worker, uint64_t incarnation, KvCompatibility compatibility, int block_size,
                               LandingDirectory* directory, KvReceiverEvents events)
    : worker_(std::move(worker)),
      incarnation_(incarnation),
      compatibility_(std::move(compatibility)),
      block_size_(block_size),
      directory_(directory),
      events_(std::move(events)) {}

grpc::ServerBidiReactor<internal::KvLinkRequest, internal::KvLinkReply>* GrpcKvReceiver::Link(
    grpc::CallbackServerContext* context) {
  auto link = std::make_shared<LinkState>();
  link->stream = Stream::Create({
      .on_message = [this, link](internal::KvLinkRequest&& message) { OnMessage(link, message); },
      .on_peer_closed = [link] { link->stream->Finish(absl::OkStatus()); },
      .on_done =
          [this, link] {
            {
              MutexLock lock(&mutex_);
              const auto it = links_.find(link->peer);
              if (it != links_.end() && it->second == link->stream) links_.erase(it);
            }
            if (link->greeted) events_.on_link_closed(link->peer);
            link->stream = nullptr;
          },
  });
  return link->stream->reactor();
}

void GrpcKvReceiver::OnMessage(const std::shared_ptr<LinkState>& link, const internal::KvLinkRequest& message) {
  using Message = internal::KvLinkRequest;
  if (message.message_case() == Message::kHello) {
    const absl::Status status = OnHello(link, message.hello());
    if (!status.ok()) link->stream->Finish(status);
    return;
  }
  if (!link->greeted) {
    link->stream->Finish(absl::InvalidArgumentError("KV link: the first message must be Hello"));
    return;
  }
  switch (message.message_case()) {
    case Message::kFrame:
      OnFrame(*link, message.frame());
      break;
    case Message::kManifest:
      OnManifest(*link, message.manifest());
      break;
    case Message::kAborted:
      events_.on_aborted(FromProto(message.aborted().transfer()), message.aborted().attempt(), link->peer);
      break;
    case Message::kOpen: {
      events_.on_open(FromProto(message.open().transfer()), message.open().attempt(), link->peer);
      // This transport is two-sided: frames are checked one by one, so a grant gives no more than the zone does.
      const auto zone = directory_->Find(FromProto(message.open().transfer()), message.open().attempt());
      internal::KvLinkReply reply;
      if (zone != nullptr) {
        *reply.mutable_grant()->mutable_transfer() = message.open().transfer();
        reply.mutable_grant()->set_attempt(message.open().attempt());
      } else {
        *reply.mutable_deny()->mutable_transfer() = message.open().transfer();
        reply.mutable_deny()->set_attempt(message.open().attempt());
        *reply.mutable_deny()->mutable_error() = ToErrorProto(absl::AbortedError("attempt is not current"));
      }
      link->stream->SendLast(std::move(reply));
      break;
    }
    default:
      link->stream->Finish(absl::InvalidArgumentError(
          absl::StrCat("KV link: unknown message kind ", static_cast<int>(message.message_case()))));
  }
}

absl::Status GrpcKvReceiver::OnHello(const std::shared_ptr<LinkState>& link, const internal::KvHello& hello) {
  if (link->greeted) return absl::InvalidArgumentError("KV link: a second Hello");
  if (hello.model_fingerprint() != compatibility_.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("model mismatch: peer ", hello.model_fingerprint(), ", local ",
                                                      compatibility_.model_fingerprint));
  }
  if (hello.kv_layout() != compatibility_.kv_layout) {
    return absl::FailedPreconditionError(
        absl::StrCat("kv layout mismatch: peer ", hello.kv_layout(), ", local ", compatibility_.kv_layout));
  }
  link->peer = {hello.worker(), hello.incarnation()};
  link->greeted = true;
  {
    MutexLock lock(&mutex_);
    links_[link->peer] = link->stream;
  }
  internal::KvLinkReply reply;
  internal::KvHello* answer = reply.mutable_hello();
  answer->set_worker(worker_);
  answer->set_incarnation(incarnation_);
  answer->set_model_fingerprint(compatibility_.model_fingerprint);
  answer->set_kv_layout(compatibility_.kv_layout);
  answer->set_numerics(compatibility_.numerics);
  answer->set_block_size(block_size_);
  link->stream->SendLast(std::move(reply));
  BATON_LOG(INFO) << "KV link from " << hello.worker() << " is up";
  return absl::OkStatus();
}

void GrpcKvReceiver::OnFrame(const LinkState& link, const internal::KvFrame& frame) {
  const TransferId transfer = FromProto(frame.transfer());
  const auto zone = directory_->Find(transfer, frame.attempt());
  if (zone == nullptr) return;  // Fenced, or ended: the writer hears of it by Abort or from the router.
  const absl::Status status = zone->Write(
      {frame.layer(), frame.token_begin(), frame.token_end(), frame.checksum()},
      {reinterpret_cast<const uint8_t*>(frame.payload().data()), frame.payload().size()});
  if (!status.ok() && !absl::IsCancelled(status)) {
    BATON_LOG(WARNING) << "transfer " << transfer.ToString() << " from " << link.peer.worker << ": " << status.message();
  }
}

void GrpcKvReceiver::OnManifest(const LinkState& link, const internal::KvManifest& message) {
  const TransferId transfer = FromProto(message.transfer());
  LandingStats stats;
  absl::Status verified = absl::CancelledError("attempt is not current");
  if (const auto zone = directory_->Find(transfer, message.attempt()); zone != nullptr) {
    verified = zone->Verify(FromProto(message), &stats);
  }
  events_.on_manifest(transfer, message.attempt(), link.peer, verified, stats);
}

void GrpcKvReceiver::Abort(const PeerId& peer, const TransferId& transfer, int attempt) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(peer);
    if (it == links_.end()) return;
    stream = it->second;
  }
  internal::KvLinkReply reply;
  *reply.mutable_abort()->mutable_transfer() = ToProto(transfer);
  reply.mutable_abort()->set_attempt(attempt);
  stream->SendLast(std::move(reply));
}

}  // namespace baton
