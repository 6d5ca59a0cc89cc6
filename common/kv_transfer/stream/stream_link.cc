// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/stream_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/copy_past_caches.h"

namespace baton {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// A connection with more than this queued gets no further frame; with less, small frames are sent together.
constexpr size_t kQueuedBytes = 128 << 10;
constexpr size_t kPlacedBytes = 512 << 10;  // So much is placed before the receiver hears of it and begins to verify.
constexpr size_t kStuckBytes = 1 << 20;     // A link that has so much queued drops what is only polite.

// Reads on through the pieces of a frame.
class Pieces {
 public:
  explicit Pieces(std::span<const std::span<const uint8_t>> pieces) : pieces_(pieces) {}
  // The next `bytes` of them, or what is left; in one span where they lie in one piece, else copied.
  std::span<const uint8_t> Next(size_t bytes) {
    while (!pieces_.empty() && offset_ == pieces_.front().size()) Advance();
    if (pieces_.empty()) return {};
    const std::span<const uint8_t> rest = pieces_.front().subspan(offset_);
    if (rest.size() >= bytes) {
      offset_ += bytes;
      return rest.first(bytes);
    }
    copy_.clear();
    while (!pieces_.empty() && copy_.size() < bytes) {
      const std::span<const uint8_t> from = pieces_.front().subspan(offset_);
      const size_t part = std::min(from.size(), bytes - copy_.size());
      copy_.insert(copy_.end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(part));
      offset_ += part;
      if (offset_ == pieces_.front().size()) Advance();
    }
    return copy_;
  }

 private:
  void Advance() {
    pieces_ = pieces_.subspan(1);
    offset_ = 0;
  }
  std::span<const std::span<const uint8_t>> pieces_;
  size_t offset_ = 0;
  std::vector<uint8_t> copy_;
};

MessageHeader HeaderOf(const OutgoingFrame& frame, MessageType type, size_t body_bytes) {
  return {.type = type,
          .transfer = frame.transfer,
          .attempt = frame.attempt,
          .frame = frame.header,
          .body_bytes = static_cast<uint32_t>(body_bytes)};
}

}  // namespace

StreamLink::StreamLink(StreamLinkOptions options, Events events)
    : options_(std::move(options)), events_(std::move(events)), wake_(MakeEvent()), closed_(MakeEvent()) {}

StreamLink::~StreamLink() { Close(absl::ZeroDuration()); }

absl::Status StreamLink::Broken(absl::string_view why) const {
  return absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " broke: ", why));
}

// ---- Opening.

absl::StatusOr<LinkHello> StreamLink::Open(const LinkHello& self, absl::Duration timeout) {
  BATON_ASSIGN_OR_RETURN(StreamHello welcome, Greet(self, timeout));
  open_.store(true);
  reader_ = Thread("kv-answers", [this] { Read(); });
  return std::move(welcome.hello);
}

absl::StatusOr<StreamHello> StreamLink::Greet(const LinkHello& self, absl::Duration timeout) {
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  StreamHello hello{.hello = self, .link = RandomUint64()};
  hello.num_connections = static_cast<uint32_t>(options_.num_connections);
  StreamHello welcome;
  for (; hello.connection < hello.num_connections; ++hello.connection) {
    auto connection = std::make_unique<Connection>();
    BATON_ASSIGN_OR_RETURN(connection->socket, options_.connect(deadline - Clock::Real()->Now()));
    connection->out.Append(EncodeMessage(MessageType::kHello, {}, 0, EncodeHello(hello)));
    connections_.push_back(std::move(connection));
    BATON_RETURN_IF_ERROR(SendSome().status());
    // All belong to the link before anything is sent: it is closed when all that it has are.
    BATON_ASSIGN_OR_RETURN(welcome, ReadWelcome(hello.connection, deadline));
  }
  return welcome;
}

absl::StatusOr<StreamHello> StreamLink::ReadWelcome(size_t connection, MonotonicTime deadline) {
  const int socket = connections_[connection]->socket.get();
  Fd memory;
  uint8_t buffer[4096];
  while (true) {
    if (WaitFor(socket, POLLIN, -1, deadline) == Ready::kTimeout) return absl::UnavailableError("no answer to Hello");
    // A descriptor comes with its bytes, and the socket hands out no more than those with one call.
    const absl::StatusOr<size_t> bytes = ReadNowWithFd(socket, buffer, &memory);
    if (!bytes.ok()) return absl::UnavailableError(absl::StrCat("no answer to Hello: ", bytes.status().message()));
    answers_.insert(answers_.end(), buffer, buffer + *bytes);
    if (answers_.size() < kHeaderBytes) continue;
    BATON_ASSIGN_OR_RETURN(const MessageHeader header, DecodeHeader(std::span(answers_).first(kHeaderBytes)));
    if (answers_.size() < kHeaderBytes + header.body_bytes) continue;
    const std::span<const uint8_t> body = std::span<const uint8_t>(answers_).subspan(kHeaderBytes, header.body_bytes);
    BATON_RETURN_IF_ERROR(CheckBody(header, body));
    if (header.type == MessageType::kRefused) return DecodeError(body);
    if (header.type != MessageType::kWelcome) return absl::InvalidArgumentError("KV link: the first answer must be Welcome");
    BATON_ASSIGN_OR_RETURN(const StreamHello welcome, DecodeHello(options_.kind, body));
    if (options_.map_pool && welcome.num_blocks > 0) {
      if (!memory) return absl::FailedPreconditionError("KV link: the receiver sent no memory");
      BATON_ASSIGN_OR_RETURN(const KvLayout layout, ParseKvLayout(welcome.hello.compatibility.kv_layout));
      BATON_ASSIGN_OR_RETURN(peer_pool_, KvPool::MapShared(layout, static_cast<int>(welcome.num_blocks), memory.get()));
    }
    answers_.erase(answers_.begin(), answers_.begin() + static_cast<ptrdiff_t>(kHeaderBytes + header.body_bytes));
    return welcome;
  }
}

// ---- Sending.

absl::Status StreamLink::SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) {
  if (!alive()) return Broken("the receiver closed it");
  const std::span<const uint8_t> body(reinterpret_cast<const uint8_t*>(token.bytes().data()), token.bytes().size());
  connections_[0]->out.Append(EncodeMessage(MessageType::kOpen, transfer, attempt, body));
  return SendSome().status();
}

absl::Status StreamLink::SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  if (!alive()) return Broken("the receiver closed it");
  if (options_.make_payloads != nullptr) return AddToBatch(frame, interrupted);
  size_t bytes = 0;
  for (const auto& piece : frame.payload) bytes += piece.size();
  if (peer_pool_ != nullptr && frame.grant != nullptr && frame.grant->one_sided) {
    BATON_RETURN_IF_ERROR(Place(frame));
    connections_[0]->out.Append(EncodeHeader(HeaderOf(frame, MessageType::kPlacedFrame, 0)));
    placed_bytes_ += bytes;
    return placed_bytes_ < kPlacedBytes ? absl::OkStatus() : Flush(interrupted);
  }
  BATON_ASSIGN_OR_RETURN(Connection* const connection, NextWritable(interrupted));
  connection->out.Append(EncodeHeader(HeaderOf(frame, MessageType::kFrame, bytes)));
  for (const auto& piece : frame.payload) connection->out.AppendReference(piece);
  // Small frames wait for company; the sender flushes when it has no more to do.
  if (connection->out.size() >= kQueuedBytes) BATON_RETURN_IF_ERROR(SendSome().status());
  if (!frame.lasting) connection->out.Own();
  return absl::OkStatus();
}

absl::Status StreamLink::Place(const OutgoingFrame& frame) {
  const KvLayout& layout = peer_pool_->layout();
  const FrameHeader& header = frame.header;
  Pieces pieces(frame.payload);
  for (int token = header.token_begin; token < header.token_end; token += layout.block_size) {
    const size_t index = static_cast<size_t>(token / layout.block_size);
    const BlockId block = index < frame.grant->blocks.size() ? frame.grant->blocks[index] : -1;
    if (block < 0 || block >= peer_pool_->num_blocks() || header.layer < 0 || header.layer >= layout.num_layers) {
      return absl::InternalError(absl::StrCat("the grant has no block for token ", token, " of layer ", header.layer));
    }
    const int count = std::min(layout.block_size, header.token_end - token);
    const std::span<const uint8_t> bytes = pieces.Next(static_cast<size_t>(count) * layout.token_layer_bytes());
    // Less than a whole part happens only where a test cuts frames short; the receiver finds out.
    const int whole = static_cast<int>(bytes.size() / layout.token_layer_bytes());
    if (whole == layout.block_size) {
      CopyPastCaches(peer_pool_->Cell(header.layer, block).data(), bytes.data(), bytes.size());
    } else if (whole > 0) {
      peer_pool_->WriteTokens(header.layer, block, 0, whole, bytes.first(static_cast<size_t>(whole) * layout.token_layer_bytes()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamLink::Connection*> StreamLink::NextWritable(const Interrupted& interrupted) {
  Connection* found = nullptr;
  const auto find = [&] {
    for (size_t i = 0; i < connections_.size() && found == nullptr; ++i) {
      Connection& connection = *connections_[(next_connection_ + i) % connections_.size()];
      if (connection.out.size() < kQueuedBytes) found = &connection;
    }
    return found != nullptr;
  };
  BATON_RETURN_IF_ERROR(WaitUntil(find, interrupted));
  next_connection_ = (next_connection_ + 1) % connections_.size();
  return found;
}

absl::StatusOr<bool> StreamLink::SendSome() {
  bool moved = false;
  for (const auto& connection : connections_) {
    if (connection->out.empty()) continue;
    const absl::StatusOr<size_t> sent = connection->out.SendNow(connection->socket.get());
    if (!sent.ok()) {
      broken_.store(true);
      return Broken(sent.status().message());
    }
    moved = moved || *sent > 0;
  }
  return moved;
}

absl::Status StreamLink::WaitUntil(const std::function<bool()>& done, const Interrupted& interrupted) {
  MonotonicTime deadline = Clock::Real()->Now() + options_.stall_timeout;
  while (!done()) {
    BATON_RETURN_IF_ERROR(interrupted());
    if (!alive()) return Broken("the receiver closed it");
    BATON_ASSIGN_OR_RETURN(const bool moved, SendSome());
    const MonotonicTime now = Clock::Real()->Now();
    if (moved) {
      deadline = now + options_.stall_timeout;
      continue;
    }
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("KV link to ", options_.address, " took no data for ",
                                                      absl::FormatDuration(options_.stall_timeout)));
    }
    std::vector<pollfd> sockets;
    for (const auto& connection : connections_) {
      if (!connection->out.empty()) sockets.push_back({.fd = connection->socket.get(), .events = POLLOUT, .revents = 0});
    }
    poll(sockets.data(), sockets.size(), static_cast<int>(absl::ToInt64Milliseconds(kPoll)));
  }
  return absl::OkStatus();
}

absl::Status StreamLink::Flush(const Interrupted& interrupted) {
  placed_bytes_ = 0;
  BATON_RETURN_IF_ERROR(SendBatch());
  const auto sent = [this] {
    return std::all_of(connections_.begin(), connections_.end(), [](const auto& c) { return c->out.empty(); });
  };
  BATON_RETURN_IF_ERROR(WaitUntil(sent, interrupted));
  if (payloads_ == nullptr) return absl::OkStatus();
  return OfPayloads(payloads_->Start(WhileAlive(interrupted)), interrupted);
}

absl::Status StreamLink::SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                                      const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  if (!alive()) return Broken("the receiver closed it");
  BATON_RETURN_IF_ERROR(SendBatch());
  connections_[0]->out.Append(EncodeMessage(MessageType::kManifest, transfer, attempt, EncodeManifest(manifest)));
  BATON_RETURN_IF_ERROR(Flush(interrupted));
  if (payloads_ == nullptr) return absl::OkStatus();
  return OfPayloads(payloads_->Drain(WhileAlive(interrupted)), interrupted);
}

void StreamLink::SendAborted(const TransferId& transfer, int attempt) {
  if (connections_.empty() || connections_[0]->out.size() > kStuckBytes) return;
  if (alive()) SendBatch().IgnoreError();  // A broken link says as much.
  connections_[0]->out.Append(EncodeMessage(MessageType::kAborted, transfer, attempt));
  if (alive()) SendSome().status().IgnoreError();  // A broken link says as much.
}

void StreamLink::Settle() {
  for (const auto& connection : connections_) connection->out.Own();
}

void StreamLink::Close(absl::Duration flush_timeout) {
  if (!open_.load()) return;
  const MonotonicTime deadline = Clock::Real()->Now() + flush_timeout;
  const auto in_time = [&] {
    return Clock::Real()->Now() < deadline ? absl::OkStatus() : absl::DeadlineExceededError("closing");
  };
  bool flushed = Flush(in_time).ok();
  if (flushed && payloads_ != nullptr) flushed = payloads_->Drain(WhileAlive(in_time)).ok();
  if (flushed) {
    // The receiver closes when it has read everything; to close first could throw away what it has not.
    for (const auto& connection : connections_) shutdown(connection->socket.get(), SHUT_WR);
    if (payloads_ != nullptr) payloads_->Close(/*orderly=*/true);  // Beside the other end's.
    // The reader notices.
    while (!drained_.load() && Clock::Real()->Now() < deadline) WaitFor(-1, 0, closed_.get(), deadline);
  }
  if (payloads_ != nullptr) payloads_->Close(/*orderly=*/false);
  open_.store(false);
  SetEvent(wake_);
  reader_.Join();
  connections_.clear();
}

// ---- Answers.

void StreamLink::Read() {
  const absl::Status status = ReadAnswers();
  if (!status.ok()) BATON_LOG(WARNING) << "KV link to " << options_.address << ": " << status.message();
  OnEnd();
  drained_.store(true);
  SetEvent(closed_);
}

void StreamLink::OnEnd() {
  broken_.store(true);
  if (open_.load() && !std::exchange(told_, true) && events_.on_closed) events_.on_closed();
}

absl::Status StreamLink::ReadAnswers() {
  std::vector<uint8_t> buffer(16 << 10);
  // Only the first connection has answers; any of them may be closed.
  std::vector<pollfd> fds = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const auto& connection : connections_) fds.push_back({.fd = connection->socket.get(), .events = POLLIN, .revents = 0});
  size_t num_open = connections_.size();
  BATON_RETURN_IF_ERROR(ParseAnswers());
  while (num_open > 0) {
    poll(fds.data(), fds.size(), 1000 * 1000);
    if (fds[0].revents != 0) return absl::OkStatus();
    for (size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      const iovec vector = {.iov_base = buffer.data(), .iov_len = buffer.size()};
      const absl::StatusOr<size_t> bytes = ReadNow(fds[i].fd, std::span(&vector, 1));
      if (!bytes.ok()) {
        fds[i].fd = -1;
        --num_open;
        OnEnd();
        continue;
      }
      if (i > 1 && *bytes > 0) return absl::InvalidArgumentError("an answer on a connection that has none");
      answers_.insert(answers_.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(*bytes));
    }
    BATON_RETURN_IF_ERROR(ParseAnswers());
  }
  return absl::OkStatus();
}

absl::Status StreamLink::ParseAnswers() {
  size_t used = 0;
  while (answers_.size() - used >= kHeaderBytes) {
    BATON_ASSIGN_OR_RETURN(const MessageHeader header, DecodeHeader(std::span(answers_).subspan(used, kHeaderBytes)));
    if (answers_.size() - used - kHeaderBytes < header.body_bytes) break;
    const std::span<const uint8_t> body = std::span<const uint8_t>(answers_).subspan(used + kHeaderBytes, header.body_bytes);
    BATON_RETURN_IF_ERROR(CheckBody(header, body));
    BATON_RETURN_IF_ERROR(HandleAnswer(header, body));
    used += kHeaderBytes + header.body_bytes;
  }
  answers_.erase(answers_.begin(), answers_.begin() + static_cast<ptrdiff_t>(used));
  return absl::OkStatus();
}

absl::Status StreamLink::HandleAnswer(const MessageHeader& header, std::span<const uint8_t> body) {
  switch (header.type) {
    case MessageType::kGrant: {
      BATON_ASSIGN_OR_RETURN(const LinkGrant grant, DecodeGrant(body));
      events_.on_grant(header.transfer, header.attempt, grant);
      return absl::OkStatus();
    }
    case MessageType::kDeny:
      events_.on_deny(header.transfer, header.attempt, DecodeError(body));
      return absl::OkStatus();
    case MessageType::kAbort:
      events_.on_abort(header.transfer, header.attempt);
      return absl::OkStatus();
    case MessageType::kRefused:
      return DecodeError(body);
    default:
      return absl::InvalidArgumentError(absl::StrCat("message type ", static_cast<int>(header.type), " is not a receiver's"));
  }
}

}  // namespace baton
