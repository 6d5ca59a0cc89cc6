// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/grpc/grpc_kv_receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/grpc/wire.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace baton {
namespace {

grpc::ByteBuffer Serialised(const internal::KvLinkReply& reply) {
  grpc::ByteBuffer buffer;
  bool own;
  const grpc::Status status = grpc::SerializationTraits<internal::KvLinkReply>::Serialize(reply, &buffer, &own);
  BATON_CHECK(status.ok()) << status.error_message();  // Memory only.
  return buffer;
}

}  // namespace

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

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* GrpcKvReceiver::Link(grpc::CallbackServerContext*) {
  auto link = std::make_shared<LinkState>();
  link->stream = Stream::Create({
      .on_message = [this, link](grpc::ByteBuffer&& bytes) { OnBytes(link, &bytes); },
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

void GrpcKvReceiver::OnBytes(const std::shared_ptr<LinkState>& link, grpc::ByteBuffer* bytes) {
  {
    IncomingMessage message(bytes);
    const auto frame = message.ReadFrame();
    if (!frame.ok()) return link->stream->Finish(frame.status());
    if (frame->has_value()) {
      if (link->greeted) return OnFrame(*link, **frame);
      return link->stream->Finish(absl::InvalidArgumentError("KV link: the first message must be Hello"));
    }
  }
  internal::KvLinkRequest message;
  const grpc::Status status = grpc::SerializationTraits<internal::KvLinkRequest>::Deserialize(bytes, &message);
  if (!status.ok()) return link->stream->Finish(absl::InvalidArgumentError("KV link: a message that is none"));
  OnMessage(link, message);
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
    case Message::kManifest:
      core_.OnManifest(link->admissions, link->peer, FromProto(message.manifest().transfer()), message.manifest().attempt(),
                       FromProto(message.manifest()), /*in_order=*/true);
      break;
    case Message::kAborted:
      core_.OnAborted(link->admissions, link->peer, FromProto(message.aborted().transfer()), message.aborted().attempt());
      break;
    case Message::kOpen:
      OnOpen(link, message.open());
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
  link->stream->SendLast(Serialised(reply));
  BATON_LOG(INFO) << "KV link from " << link->peer.worker << " by grpc is up";
  return absl::OkStatus();
}

void GrpcKvReceiver::OnOpen(const std::shared_ptr<LinkState>& link, const internal::KvOpen& open) {
  const TransferId transfer = FromProto(open.transfer());
  const absl::Status status = core_.OnOpen(link->admissions, link->peer, transfer, open.attempt(), WriteToken(open.write_token()));
  if (!status.ok()) Deny(link->peer, transfer, open.attempt(), status);
}

void GrpcKvReceiver::OnFrame(const LinkState& link, const IncomingMessage::Frame& frame) {
  const auto zone = core_.Find(link.admissions, frame.transfer, frame.attempt);
  if (zone != nullptr) core_.OnFrameResult(link.peer, frame.transfer, zone->Write(frame.header, frame.payload));
}

void GrpcKvReceiver::Reply(const PeerId& peer, const internal::KvLinkReply& reply) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(peer);
    if (it == links_.end()) return;
    stream = it->second;
  }
  stream->SendLast(Serialised(reply));
}

void GrpcKvReceiver::Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant&) {
  internal::KvLinkReply reply;
  *reply.mutable_grant()->mutable_transfer() = ToProto(transfer);
  reply.mutable_grant()->set_attempt(attempt);
  Reply(peer, reply);
}

void GrpcKvReceiver::Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) {
  internal::KvLinkReply reply;
  *reply.mutable_deny()->mutable_transfer() = ToProto(transfer);
  reply.mutable_deny()->set_attempt(attempt);
  *reply.mutable_deny()->mutable_error() = ToErrorProto(why);
  Reply(peer, reply);
}

void GrpcKvReceiver::Abort(const PeerId& peer, const TransferId& transfer, int attempt) {
  internal::KvLinkReply reply;
  *reply.mutable_abort()->mutable_transfer() = ToProto(transfer);
  reply.mutable_abort()->set_attempt(attempt);
  Reply(peer, reply);
}

}  // namespace baton
