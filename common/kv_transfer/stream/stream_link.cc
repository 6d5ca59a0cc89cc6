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

namespace baton {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// A connection with more than this queued gets no further frame; with less, small frames are sent together.
constexpr size_t kQueuedBytes = 128 << 10;
constexpr size_t kStuckBytes = 1 << 20;  // A link that has so much queued drops what is only polite.

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
    if (options_.open_pool != nullptr && welcome.num_blocks > 0) {
      BATON_ASSIGN_OR_RETURN(peer_pool_, options_.open_pool(welcome, memory));
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

bool StreamLink::sums_cells(const LinkGrant* grant) const {
  if (peer_pool_ != nullptr) return grant != nullptr && grant->one_sided && peer_pool_->sums_cells();
  return options_.make_payloads != nullptr && options_.payloads_sum_cells;
}

absl::Status StreamLink::SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  if (!alive()) return Broken("the receiver closed it");
  if (options_.make_payloads != nullptr) return AddToBatch(frame, interrupted);
  size_t bytes = 0;
  for (const auto& piece : frame.payload) bytes += piece.size();
  if (peer_pool_ != nullptr && frame.grant != nullptr && frame.grant->one_sided) {
    return PlaceFrame(frame, bytes, interrupted);
  }
  BATON_ASSIGN_OR_RETURN(Connection* const connection, NextWritable(interrupted));
  connection->out.Append(EncodeHeader({.type = MessageType::kFrame,
                                       .transfer = frame.transfer,
                                       .attempt = frame.attempt,
                                       .frame = frame.header,
                                       .body_bytes = static_cast<uint32_t>(bytes)}));
  for (const auto& piece : frame.payload) connection->out.AppendReference(piece);
  // Small frames wait for company; the sender flushes when it has no more to do.
  if (connection->out.size() >= kQueuedBytes) BATON_RETURN_IF_ERROR(SendSome().status());
  if (!frame.lasting) connection->out.Own();
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
  BATON_RETURN_IF_ERROR(AnnouncePlaced(/*all=*/true, interrupted));
  BATON_RETURN_IF_ERROR(EndBatch());
  BATON_RETURN_IF_ERROR(SendBatches(/*all=*/true, interrupted));
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
  BATON_RETURN_IF_ERROR(AnnouncePlaced(/*all=*/true, interrupted));
  BATON_RETURN_IF_ERROR(EndBatch());
  BATON_RETURN_IF_ERROR(SendBatches(/*all=*/true, interrupted));
  connections_[0]->out.Append(EncodeMessage(MessageType::kManifest, transfer, attempt, EncodeManifest(manifest)));
  BATON_RETURN_IF_ERROR(Flush(interrupted));
  if (payloads_ == nullptr) return absl::OkStatus();
  return OfPayloads(payloads_->Drain(WhileAlive(interrupted)), interrupted);
}

void StreamLink::SendAborted(const TransferId& transfer, int attempt) {
  if (connections_.empty() || connections_[0]->out.size() > kStuckBytes) return;
  if (alive()) AnnouncePlaced(/*all=*/false, [] { return absl::OkStatus(); }).IgnoreError();  // A broken link says as much.
  // As here. What Settle has waited for is ready.
  if (alive() && EndBatch().ok()) SendBatches(/*all=*/false, [] { return absl::OkStatus(); }).IgnoreError();
  connections_[0]->out.Append(EncodeMessage(MessageType::kAborted, transfer, attempt));
  if (alive()) SendSome().status().IgnoreError();  // A broken link says as much.
}

// Where the pool is written to in spite of all, the link says nothing more: not even that an attempt has ended.
void StreamLink::Settle() {
  for (const auto& connection : connections_) connection->out.Own();
  if (peer_pool_ != nullptr && !peer_pool_->Settle()) broken_.store(true);
  if (payloads_ != nullptr && (!EndBatch().ok() || !payloads_->Settle())) broken_.store(true);
}

void StreamLink::Close(absl::Duration flush_timeout) {
  if (!open_.load()) return;
  const MonotonicTime deadline = Clock::Real()->Now() + flush_timeout;
  const auto in_time = [&] {
    return Clock::Real()->Now() < deadline ? absl::OkStatus() : absl::DeadlineExceededError("closing");
  };
  bool flushed = Flush(in_time).ok();
  if (flushed && payloads_ != nullptr) flushed = payloads_->Drain(WhileAlive(in_time)).ok();
  ReleasePool();
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
