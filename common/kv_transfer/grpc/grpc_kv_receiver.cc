// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/grpc/grpc_kv_receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/grpc/wire.h"

namespace baton {

GrpcKvReceiver::GrpcKvReceiver(KvReceiverOptions options, LandingDirectory* directory, KvReceiverEvents events)
    : core_(TransportKind::kGrpc, std::move(options), directory, std::move(events)) {}

TransportOffer GrpcKvReceiver::offer() const {
  MutexLock lock(&mutex_);
  return {TransportKind::kGrpc, TransportHost(TransportKind::kGrpc), address_};
}

void GrpcKvReceiver::SetAddress(std::string address) {
  MutexLock lock(&mutex_);
  address_ = std::move(address);
}

grpc::ServerBidiReactor<internal::KvLinkRequest, internal::KvLinkReply>* GrpcKvReceiver::Link(
    grpc::CallbackServerContext* context) {
  auto link = std::make_shared<LinkState>();
  link->stream = Stream::Create({
      .on_message = [this, link](internal::KvLinkRequest&& message) { OnMessage(link, message); },
      .on_peer_closed = [link] { link->stream->Finish(absl::OkStatus()); },
      .on_done = [this, link] { OnLinkDone(link); },
  });
  return link->stream->reactor();
}

void GrpcKvReceiver::OnLinkDone(const std::shared_ptr<LinkState>& link) {
  bool newest = false;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(link->peer);
    newest = link->greeted && it != links_.end() && it->second == link->stream;
    if (newest) links_.erase(it);
  }
  // Of an older link it was said when the newer one came.
  if (newest) core_.events().on_link_closed(link->peer);
  link->stream = nullptr;
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
      core_.OnManifest(link->peer, FromProto(message.manifest().transfer()), message.manifest().attempt(),
                       FromProto(message.manifest()), /*in_order=*/true);
      break;
    case Message::kAborted:
      core_.events().on_aborted(FromProto(message.aborted().transfer()), message.aborted().attempt(), link->peer);
      break;
    case Message::kOpen:
      core_.events().on_open(FromProto(message.open().transfer()), message.open().attempt(), link->peer);
      break;
    default:
      link->stream->Finish(absl::InvalidArgumentError(
          absl::StrCat("KV link: unknown message kind ", static_cast<int>(message.message_case()))));
  }
}

absl::Status GrpcKvReceiver::OnHello(const std::shared_ptr<LinkState>& link, const internal::KvHello& message) {
  if (link->greeted) return absl::InvalidArgumentError("KV link: a second Hello");
  const LinkHello hello = FromProto(message);
  BATON_RETURN_IF_ERROR(core_.CheckHello(hello));
  link->peer = hello.self;
  link->greeted = true;
  bool replaced;
  {
    MutexLock lock(&mutex_);
    replaced = !links_.insert_or_assign(link->peer, link->stream).second;
  }
  if (replaced) core_.events().on_link_closed(link->peer);
  internal::KvLinkReply reply;
  *reply.mutable_hello() = ToProto(core_.hello());
  link->stream->SendLast(std::move(reply));
  BATON_LOG(INFO) << "KV link from " << link->peer.worker << " by grpc is up";
  return absl::OkStatus();
}

void GrpcKvReceiver::OnFrame(const LinkState& link, const internal::KvFrame& frame) {
  const TransferId transfer = FromProto(frame.transfer());
  const auto zone = core_.Find(transfer, frame.attempt());
  if (zone == nullptr) return;
  const std::span<const uint8_t> payload(reinterpret_cast<const uint8_t*>(frame.payload().data()), frame.payload().size());
  core_.OnFrameResult(link.peer, transfer,
                      zone->Write({frame.layer(), frame.token_begin(), frame.token_end(), frame.checksum()}, payload));
}

void GrpcKvReceiver::Reply(const PeerId& peer, internal::KvLinkReply reply) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(peer);
    if (it == links_.end()) return;
    stream = it->second;
  }
  stream->SendLast(std::move(reply));
}

void GrpcKvReceiver::Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant&) {
  internal::KvLinkReply reply;
  *reply.mutable_grant()->mutable_transfer() = ToProto(transfer);
  reply.mutable_grant()->set_attempt(attempt);
  Reply(peer, std::move(reply));
}

void GrpcKvReceiver::Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) {
  internal::KvLinkReply reply;
  *reply.mutable_deny()->mutable_transfer() = ToProto(transfer);
  reply.mutable_deny()->set_attempt(attempt);
  *reply.mutable_deny()->mutable_error() = ToErrorProto(why);
  Reply(peer, std::move(reply));
}

void GrpcKvReceiver::Abort(const PeerId& peer, const TransferId& transfer, int attempt) {
  internal::KvLinkReply reply;
  *reply.mutable_abort()->mutable_transfer() = ToProto(transfer);
  reply.mutable_abort()->set_attempt(attempt);
  Reply(peer, std::move(reply));
}

}  // namespace baton
