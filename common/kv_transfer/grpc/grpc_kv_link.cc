// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/grpc/grpc_kv_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/grpc/frame_message.h"
#include "common/kv_transfer/grpc/wire.h"
#include "common/rpc/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace baton {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
const char kMethod[] = "/baton.internal.KvPeer/Link";

grpc::ByteBuffer Serialised(const internal::KvLinkRequest& message) {
  grpc::ByteBuffer buffer;
  bool own;
  const grpc::Status status = grpc::SerializationTraits<internal::KvLinkRequest>::Serialize(message, &buffer, &own);
  BATON_CHECK(status.ok()) << status.error_message();  // Memory only.
  return buffer;
}

}  // namespace

GrpcKvLink::GrpcKvLink(const GrpcKvLinkOptions& options, Events events)
    : options_(options), state_(std::make_shared<State>()) {
  state_->events = std::move(events);
}

GrpcKvLink::~GrpcKvLink() { Close(absl::ZeroDuration()); }

absl::StatusOr<LinkHello> GrpcKvLink::Open(const LinkHello& self, absl::Duration timeout) {
  stream_ = Stream::Create(
      {.on_message = [state = state_](internal::KvLinkReply&& reply) { OnReply(*state, reply); },
       .on_done =
           [state = state_](absl::Status status) {
             bool greeted;
             {
               MutexLock lock(&state->mutex);
               greeted = state->hello.has_value();
               state->status = std::move(status);
             }
             if (greeted && state->events.on_closed) state->events.on_closed();
             MutexLock lock(&state->mutex);
             state->over = true;
             state->changed.NotifyAll();
           }},
      {.max_queued_messages = 1 << 16, .max_queued_bytes = 2 * options_.max_queued_bytes});
  // A channel of its own: one that was refused once waits long before it tries a restarted peer again.
  grpc::TemplatedGenericStub<grpc::ByteBuffer, internal::KvLinkReply> stub(CreateChannel(options_.address, options_.tls));
  stub.PrepareBidiStreamingCall(stream_->context(), kMethod, {}, stream_->reactor());
  stream_->Start();
  internal::KvLinkRequest request;
  *request.mutable_hello() = ToProto(self);
  stream_->SendLast(Serialised(request));

  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  MutexLock lock(&state_->mutex);
  while (!state_->hello.has_value() && !state_->over) {
    if (Clock::Real()->Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    }
    state_->changed.WaitFor(&state_->mutex, kPoll);
  }
  if (state_->hello.has_value()) return *state_->hello;
  return state_->status.ok() ? absl::UnavailableError("closed without an answer") : state_->status;
}

bool GrpcKvLink::alive() const {
  MutexLock lock(&state_->mutex);
  return state_->hello.has_value() && !state_->over;
}

absl::Status GrpcKvLink::Broken() const {
  MutexLock lock(&state_->mutex);
  return absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " broke",
                                             state_->status.ok() ? "" : ": ", state_->status.message()));
}

absl::Status GrpcKvLink::Send(const internal::KvLinkRequest& message) {
  return stream_->SendLast(Serialised(message)) ? absl::OkStatus() : Broken();
}

absl::Status GrpcKvLink::SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) {
  internal::KvLinkRequest message;
  *message.mutable_open()->mutable_transfer() = ToProto(transfer);
  message.mutable_open()->set_attempt(attempt);
  message.mutable_open()->set_write_token(token.bytes());
  return Send(message);
}

absl::Status GrpcKvLink::SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(WaitWritable(interrupted));
  return stream_->SendLast(EncodeFrameMessage(frame)) ? absl::OkStatus() : Broken();
}

absl::Status GrpcKvLink::SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                                      const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(WaitWritable(interrupted));
  internal::KvLinkRequest message;
  *message.mutable_manifest() = ToProto(manifest);
  *message.mutable_manifest()->mutable_transfer() = ToProto(transfer);
  message.mutable_manifest()->set_attempt(attempt);
  return Send(message);
}

void GrpcKvLink::SendAborted(const TransferId& transfer, int attempt) {
  internal::KvLinkRequest message;
  *message.mutable_aborted()->mutable_transfer() = ToProto(transfer);
  message.mutable_aborted()->set_attempt(attempt);
  stream_->SendLast(Serialised(message));
}

absl::Status GrpcKvLink::WaitWritable(const Interrupted& interrupted) {
  const MonotonicTime deadline = Clock::Real()->Now() + options_.stall_timeout;
  while (true) {
    BATON_RETURN_IF_ERROR(interrupted());
    if (stream_->WaitBelow(options_.max_queued_bytes, kPoll)) return absl::OkStatus();
    if (!alive()) return Broken();
    if (Clock::Real()->Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("KV link to ", options_.address, " took no data for ",
                                                      absl::FormatDuration(options_.stall_timeout)));
    }
  }
}

void GrpcKvLink::Close(absl::Duration flush_timeout) {
  if (stream_ == nullptr) return;
  // A job is done when its manifest is queued, so what is queued must still reach the peer.
  stream_->CloseSending();
  const MonotonicTime deadline = Clock::Real()->Now() + flush_timeout;
  {
    MutexLock lock(&state_->mutex);
    while (!state_->over && Clock::Real()->Now() < deadline) state_->changed.WaitFor(&state_->mutex, kPoll);
  }
  stream_->Cancel();
  {
    MutexLock lock(&state_->mutex);
    while (!state_->over) state_->changed.WaitFor(&state_->mutex, kPoll);
  }
  stream_ = nullptr;
}

void GrpcKvLink::OnReply(State& state, const internal::KvLinkReply& reply) {
  switch (reply.message_case()) {
    case internal::KvLinkReply::kHello: {
      MutexLock lock(&state.mutex);
      state.hello = FromProto(reply.hello());
      state.changed.NotifyAll();
      return;
    }
    case internal::KvLinkReply::kAbort:
      return state.events.on_abort(FromProto(reply.abort().transfer()), reply.abort().attempt());
    case internal::KvLinkReply::kDeny:
      return state.events.on_deny(FromProto(reply.deny().transfer()), reply.deny().attempt(),
                                  absl::AbortedError(reply.deny().error().message()));
    default:
      return;  // Grants concern one-sided writers.
  }
}

}  // namespace baton
