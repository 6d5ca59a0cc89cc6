// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/grpc/grpc_kv_sender.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/grpc/wire.h"
#include "common/rpc/channel.h"

namespace baton {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);
constexpr absl::Duration kConnectTimeout = absl::Seconds(2);

}  // namespace

class KvSender::Transfer {
 public:
  explicit Transfer(SendJob j) : job(std::move(j)) {}

  SendJob job;                         // Sender thread only, after Begin.
  std::vector<FrameRecord> records;    // Sender thread only.
  SendStats stats;                     // Sender thread only.
  bool ended = false;                  // Sender thread only.
  // The link that the job began on: the rest of it over another one would leave a hole. Sender thread only.
  std::shared_ptr<ClientEventStream<internal::KvLinkRequest, internal::KvLinkReply>> link;
  std::atomic<bool> cancelled{false};  // By this process.
  std::atomic<bool> fenced{false};     // By the peer's Abort.
};

GrpcKvSender::GrpcKvSender(const GrpcKvSenderOptions& options, const KvPool* pool)
    : options_(options),
      pool_(pool),
      commands_(1 << 20),
      thread_("kv-send", [this] { Run(); }) {}

GrpcKvSender::~GrpcKvSender() { Stop(); }

void GrpcKvSender::Stop() {
  commands_.Close();
  thread_.Join();
  std::vector<std::shared_ptr<Transfer>> open;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, weak] : open_) {
      if (auto transfer = weak.lock()) open.push_back(std::move(transfer));
    }
  }
  for (const auto& transfer : open) End(*transfer, absl::UnavailableError("KV sender is shutting down"));
  CloseLink(options_.transfer_timeout);
}

// A job is done when its manifest is queued, so what is queued must still reach the peer.
void GrpcKvSender::CloseLink(absl::Duration flush_timeout) {
  if (link_ == nullptr) return;
  const MonotonicTime deadline = Clock::Real()->Now() + flush_timeout;
  link_->stream->CloseSending();
  {
    MutexLock lock(&link_->mutex);
    while (!link_->closed && Clock::Real()->Now() < deadline) link_->changed.WaitFor(&link_->mutex, kPoll);
  }
  link_->stream->Cancel();
  {
    MutexLock lock(&link_->mutex);
    while (!link_->closed) link_->changed.WaitFor(&link_->mutex, kPoll);
  }
  link_ = nullptr;
}

std::shared_ptr<KvSender::Transfer> GrpcKvSender::Begin(SendJob job) {
  const auto key = std::make_pair(job.transfer, job.attempt);
  auto transfer = std::make_shared<Transfer>(std::move(job));
  {
    MutexLock lock(&mutex_);
    open_[key] = transfer;
  }
  commands_.ForcePush({Command::Kind::kBegin, transfer});
  return transfer;
}

void GrpcKvSender::Push(const std::shared_ptr<Transfer>& transfer, int layer_begin, int layer_end, int token_begin,
                        int token_end) {
  commands_.ForcePush({Command::Kind::kPush, transfer, {layer_begin, layer_end, token_begin, token_end}});
}

void GrpcKvSender::Finish(const std::shared_ptr<Transfer>& transfer, Manifest manifest) {
  commands_.ForcePush({Command::Kind::kFinish, transfer, {}, std::move(manifest), Clock::Real()->Now()});
}

void GrpcKvSender::Cancel(const std::shared_ptr<Transfer>& transfer) {
  transfer->cancelled.store(true);
  commands_.ForcePush({Command::Kind::kCancel, transfer});
}

void GrpcKvSender::Run() {
  while (!commands_.closed()) {
    if (std::optional<Command> command = commands_.Pop(absl::Seconds(10))) Handle(*command);
  }
}

void GrpcKvSender::Handle(Command& command) {
  if (command.transfer == nullptr || command.transfer->ended) return;
  Transfer& transfer = *command.transfer;
  absl::Status status;
  if (transfer.cancelled.load()) {
    status = absl::CancelledError("transfer was cancelled");
  } else if (transfer.fenced.load()) {
    status = absl::AbortedError("decode fenced this attempt");
  } else {
    switch (command.kind) {
      case Command::Kind::kBegin:
        status = BeginTransfer(transfer);
        break;
      case Command::Kind::kPush:
        status = SendPiece(transfer, command.piece);
        break;
      case Command::Kind::kFinish:
        status = SendManifest(transfer, command.manifest);
        if (status.ok()) {
          transfer.stats.tail_ms = ToMs(Clock::Real()->Now() - command.enqueued);
          End(transfer, absl::OkStatus());
        }
        break;
      case Command::Kind::kCancel:
        break;
    }
  }
  if (!status.ok()) End(transfer, status);
}

void GrpcKvSender::End(Transfer& transfer, const absl::Status& status) {
  if (transfer.ended) return;
  transfer.ended = true;
  if (!status.ok() && transfer.link != nullptr) {
    internal::KvLinkRequest message;
    *message.mutable_aborted()->mutable_transfer() = ToProto(transfer.job.transfer);
    message.mutable_aborted()->set_attempt(transfer.job.attempt);
    transfer.link->SendLast(std::move(message));
  }
  {
    MutexLock lock(&mutex_);
    open_.erase({transfer.job.transfer, transfer.job.attempt});
  }
  auto on_done = std::move(transfer.job.on_done);
  if (on_done) on_done(status, transfer.stats);
}

absl::Status GrpcKvSender::BeginTransfer(Transfer& transfer) {
  BATON_RETURN_IF_ERROR(EnsureLink(transfer));
  transfer.link = link_->stream;
  internal::KvLinkRequest message;
  *message.mutable_open()->mutable_transfer() = ToProto(transfer.job.transfer);
  message.mutable_open()->set_attempt(transfer.job.attempt);
  if (link_->stream->SendLast(std::move(message))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " broke"));
}

absl::Status GrpcKvSender::EnsureLink(const Transfer& transfer) {
  bool alive = false;
  if (link_ != nullptr) {
    MutexLock lock(&link_->mutex);
    alive = link_->greeted && !link_->closed;
  }
  if (!alive) {
    CloseLink(absl::ZeroDuration());
    BATON_RETURN_IF_ERROR(OpenLink());
  }
  MutexLock lock(&link_->mutex);
  if (link_->peer_incarnation == transfer.job.peer_incarnation) return absl::OkStatus();
  // Other jobs may be using the link; when it is the old process's it closes by itself.
  return absl::UnavailableError(absl::StrCat("the decode worker at ", options_.address, " is not the one that reserved"));
}

absl::Status GrpcKvSender::OpenLink() {
  auto link = std::make_shared<Link>();
  link->stream = Stream::Create(
      {.on_message = [this, link](internal::KvLinkReply&& reply) { OnReply(link, reply); },
       .on_done =
           [link](absl::Status status) {
             MutexLock lock(&link->mutex);
             link->closed = true;
             link->status = std::move(status);
             link->changed.NotifyAll();
           }},
      {.max_queued_messages = 1 << 16, .max_queued_bytes = 2 * options_.max_queued_bytes});
  // A channel of its own: one that was refused once waits long before it tries a restarted peer again.
  internal::KvPeer::NewStub(CreateChannel(options_.address))->async()->Link(link->stream->context(), link->stream->reactor());
  link->stream->Start();
  internal::KvLinkRequest request;
  internal::KvHello* hello = request.mutable_hello();
  hello->set_worker(options_.worker);
  hello->set_incarnation(options_.incarnation);
  hello->set_model_fingerprint(options_.compatibility.model_fingerprint);
  hello->set_kv_layout(options_.compatibility.kv_layout);
  hello->set_numerics(options_.compatibility.numerics);
  hello->set_block_size(pool_->layout().block_size);
  link->stream->SendLast(std::move(request));
  link_ = link;

  const MonotonicTime deadline = Clock::Real()->Now() + kConnectTimeout;
  MutexLock lock(&link->mutex);
  while (!link->greeted && !link->closed) {
    if (Clock::Real()->Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("KV link to ", options_.address, ": no answer within ",
                                                 absl::FormatDuration(kConnectTimeout)));
    }
    link->changed.WaitFor(&link->mutex, kPoll);
  }
  if (link->closed) return Annotate(link->status, absl::StrCat("KV link to ", options_.address));
  return absl::OkStatus();
}

void GrpcKvSender::OnReply(const std::shared_ptr<Link>& link, const internal::KvLinkReply& reply) {
  switch (reply.message_case()) {
    case internal::KvLinkReply::kHello: {
      MutexLock lock(&link->mutex);
      link->greeted = true;
      link->peer_incarnation = reply.hello().incarnation();
      link->changed.NotifyAll();
      return;
    }
    case internal::KvLinkReply::kAbort:
      return MarkFenced(FromProto(reply.abort().transfer()), reply.abort().attempt());
    case internal::KvLinkReply::kDeny:
      return MarkFenced(FromProto(reply.deny().transfer()), reply.deny().attempt());
    default:
      return;  // Grants concern one-sided writers.
  }
}

void GrpcKvSender::MarkFenced(const TransferId& id, int attempt) {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(&mutex_);
    const auto it = open_.find({id, attempt});
    if (it != open_.end()) transfer = it->second.lock();
  }
  if (transfer == nullptr) return;
  transfer->fenced.store(true);
  commands_.ForcePush({Command::Kind::kCancel, transfer});
}

absl::Status GrpcKvSender::SendPiece(Transfer& transfer, const Piece& piece) {
  const KvLayout& layout = pool_->layout();
  const int first = std::max(piece.token_begin, transfer.job.first_token);
  const int blocks_per_frame =
      std::max<int>(1, static_cast<int>(options_.max_frame_bytes / layout.block_layer_bytes()));
  for (int layer = piece.layer_begin; layer < piece.layer_end; ++layer) {
    for (int token = first; token < piece.token_end;) {
      const int end = std::min(piece.token_end, token + blocks_per_frame * layout.block_size);
      BATON_RETURN_IF_ERROR(SendFrame(transfer, layer, token, end));
      token = end;
    }
  }
  return absl::OkStatus();
}

absl::Status GrpcKvSender::SendFrame(Transfer& transfer, int layer, int token_begin, int token_end) {
  BATON_RETURN_IF_ERROR(WaitWritable(transfer));
  const KvLayout& layout = pool_->layout();
  internal::KvLinkRequest message;
  internal::KvFrame* frame = message.mutable_frame();
  *frame->mutable_transfer() = ToProto(transfer.job.transfer);
  frame->set_attempt(transfer.job.attempt);
  frame->set_layer(layer);
  frame->set_token_begin(token_begin);
  frame->set_token_end(token_end);
  std::string* payload = frame->mutable_payload();
  payload->resize(static_cast<size_t>(token_end - token_begin) * layout.token_layer_bytes());
  uint8_t* out = reinterpret_cast<uint8_t*>(payload->data());
  size_t filled = 0;
  for (int token = token_begin; token < token_end;) {
    const int count = std::min(layout.block_size, token_end - token);
    const size_t bytes = static_cast<size_t>(count) * layout.token_layer_bytes();
    pool_->ReadTokens(layer, transfer.job.blocks[token / layout.block_size], token % layout.block_size, count,
                      {out + filled, bytes});
    filled += bytes;
    token += count;
  }
  frame->set_checksum(FrameChecksum({out, filled}));
  transfer.records.push_back({layer, token_begin, token_end, frame->checksum()});
  transfer.stats.payload_bytes += static_cast<int64_t>(filled);
  if (!link_->stream->SendLast(std::move(message))) {
    return absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " broke"));
  }
  return absl::OkStatus();
}

absl::Status GrpcKvSender::SendManifest(Transfer& transfer, const Manifest& manifest) {
  BATON_RETURN_IF_ERROR(WaitWritable(transfer));
  internal::KvLinkRequest message;
  internal::KvManifest* proto = message.mutable_manifest();
  *proto = ToProto(manifest);
  *proto->mutable_transfer() = ToProto(transfer.job.transfer);
  proto->set_attempt(transfer.job.attempt);
  proto->set_checksum(ManifestChecksum(transfer.records));
  proto->set_payload_bytes(transfer.stats.payload_bytes);
  if (!link_->stream->SendLast(std::move(message))) {
    return absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " broke"));
  }
  return absl::OkStatus();
}

absl::Status GrpcKvSender::WaitWritable(const Transfer& transfer) {
  const MonotonicTime deadline = Clock::Real()->Now() + options_.transfer_timeout;
  while (true) {
    if (transfer.cancelled.load()) return absl::CancelledError("transfer was cancelled");
    if (transfer.fenced.load()) return absl::AbortedError("decode fenced this attempt");
    if (link_ == nullptr || link_->stream != transfer.link) {
      return absl::UnavailableError(absl::StrCat("the KV link to ", options_.address, " broke and was opened again"));
    }
    if (link_->stream->WaitBelow(options_.max_queued_bytes, kPoll)) return absl::OkStatus();
    {
      MutexLock lock(&link_->mutex);
      if (link_->closed) return Annotate(absl::UnavailableError(link_->status.message()), "KV link closed");
    }
    if (Clock::Real()->Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("KV link to ", options_.address, " took no data for ",
                                                      absl::FormatDuration(options_.transfer_timeout)));
    }
  }
}

}  // namespace baton
