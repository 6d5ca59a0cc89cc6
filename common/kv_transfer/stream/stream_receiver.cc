// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/stream_receiver.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr absl::Duration kGoneGrace = absl::Seconds(2);

// A connection's bytes, until `wake` is set.
class SocketSource final : public ByteSource {
 public:
  SocketSource(int socket, int wake, absl::Duration hello_timeout)
      : socket_(socket), wake_(wake), hello_timeout_(hello_timeout), deadline_(Clock::Real()->Now() + hello_timeout) {}
  // An idle link is no fault; one that never said who it is must not stay.
  void Greeted() { deadline_ = absl::InfiniteDuration(); }
  absl::Status WaitReadable() override {
    switch (WaitFor(socket_, POLLIN, wake_, deadline_)) {
      case Ready::kReady:
        return absl::OkStatus();
      case Ready::kEvent:
        return absl::CancelledError("the receiver is stopping");
      case Ready::kTimeout:
        break;
    }
    return Late();
  }
  // A peer that has closed after it sent everything has left nothing behind that is long in coming.
  absl::Status Interrupted() override {
    if (WaitFor(-1, 0, wake_, absl::ZeroDuration()) == Ready::kEvent) return absl::CancelledError("the receiver is stopping");
    pollfd socket = {.fd = socket_, .events = POLLRDHUP, .revents = 0};
    if (poll(&socket, 1, 0) <= 0) return absl::OkStatus();
    const MonotonicTime now = Clock::Real()->Now();
    gone_since_ = std::min(gone_since_, now);
    if (now - gone_since_ < kGoneGrace) return absl::OkStatus();
    return absl::UnavailableError("the peer is gone, and what it announced does not come");
  }
  // A little now and then is not in time either.
  absl::StatusOr<size_t> ReadNow(std::span<const iovec> to) override {
    if (deadline_ < absl::InfiniteDuration() && Clock::Real()->Now() >= deadline_) return Late();
    return ::baton::ReadNow(socket_, to);
  }

 private:
  absl::Status Late() const {
    return absl::DeadlineExceededError(absl::StrCat("no Hello within ", absl::FormatDuration(hello_timeout_)));
  }
  const int socket_, wake_;
  const absl::Duration hello_timeout_;
  MonotonicTime deadline_;
  MonotonicTime gone_since_ = absl::InfiniteDuration();
};

}  // namespace

StreamReceiver::StreamReceiver(const StreamReceiverOptions& options, KvReceiverOptions receiver, Fd listening,
                               LandingDirectory* directory, KvReceiverEvents events)
    : options_(options),
      core_(options.kind, std::move(receiver), directory, std::move(events)),
      listening_(std::move(listening)),
      stop_(MakeEvent()),
      acceptor_("kv-accept", [this] { Accept(); }) {}

StreamReceiver::~StreamReceiver() { Stop(); }

TransportOffer StreamReceiver::offer() const { return {options_.kind, TransportHost(options_.kind), options_.address}; }

void StreamReceiver::Stop() {
  SetEvent(stop_);
  acceptor_.Join();
  listening_.Reset();
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    connections.swap(connections_);
  }
  if (!options_.pool_memory.empty() && !TakeBackPool(connections)) core_.options().pool->KeepDeviceMemory();
  for (const auto& connection : connections) {
    SetEvent(connection->wake);
    Shutdown(*connection);
  }
  for (const auto& connection : connections) connection->thread.Join();
  MutexLock lock(&mutex_);
  links_.clear();
  watched_.clear();
}

bool StreamReceiver::TakeBackPool(std::span<const std::shared_ptr<Connection>> connections) {
  const MonotonicTime deadline = Clock::Real()->Now() + options_.release_timeout;
  for (const auto& connection : connections) {
    if (connection->shares.load()) {
      shutdown(connection->socket.get(), SHUT_WR);  // The writer sees the end of the link; what it says last is still read.
    } else {
      SetEvent(connection->wake);
      Shutdown(*connection);
    }
  }
  int num_left = 0;
  for (const auto& connection : connections) num_left += WaitFor(-1, 0, connection->gone.get(), deadline) == Ready::kEvent ? 0 : 1;
  if (num_left == 0) return true;
  BATON_LOG(ERROR) << "KV links by " << TransportName(options_.kind) << ": " << num_left << " writers have not closed this process's pool within "
                   << absl::FormatDuration(options_.release_timeout) << "; its memory is not freed before the process ends";
  return false;
}

// ---- The accepting thread.

void StreamReceiver::Accept() {
  while (WaitFor(listening_.get(), POLLIN, stop_.get(), absl::InfiniteDuration()) == Ready::kReady) {
    Fd socket(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      AddConnection(std::move(socket));
    } else if (WaitFor(-1, 0, stop_.get(), Clock::Real()->Now() + absl::Milliseconds(10)) == Ready::kEvent) {
      return;  // Out of descriptors, or the peer went away at once: not in a tight loop.
    }
  }
}

void StreamReceiver::AddConnection(Fd socket) {
  std::vector<std::shared_ptr<Connection>> finished;
  MutexLock lock(&mutex_);
  std::erase_if(connections_, [&](const auto& connection) {
    if (!connection->finished.load()) return false;
    finished.push_back(connection);
    return true;
  });
  for (const auto& connection : finished) connection->thread.Join();  // It has nothing left to do.
  if (static_cast<int>(connections_.size()) >= options_.max_connections) {
    BATON_LOG(WARNING) << "KV links by " << TransportName(options_.kind) << ": " << options_.max_connections
                       << " connections are open, another one is refused";
    return;
  }
  auto connection = std::make_shared<Connection>();
  connection->socket = std::move(socket);
  connection->wake = MakeEvent();
  connection->read_out = MakeEvent();
  connection->gone = MakeEvent();
  connections_.push_back(connection);
  connection->thread = Thread("kv-recv", [this, connection] { Serve(connection); });
}

// ---- A connection's thread.

void StreamReceiver::Serve(const std::shared_ptr<Connection>& connection) {
  absl::Status status;
  if (options_.same_user || options_.share_pool) {
    auto process = ProcessOfPeer(connection->socket.get());
    if (process.ok()) {
      connection->process = *std::move(process);
    } else {
      status = process.status();
    }
  }
  if (status.ok()) {
    SocketSource source(connection->socket.get(), connection->wake.get(), options_.hello_timeout);
    const auto on_hello = [&](const StreamHello& hello) -> absl::StatusOr<std::shared_ptr<LinkAdmissions>> {
      source.Greeted();
      BATON_RETURN_IF_ERROR(OnHello(connection, hello));
      return connection->admissions;
    };
    const auto deny = [&](const TransferId& transfer, int attempt, const absl::Status& why) {
      Deny(connection->peer, transfer, attempt, why);
    };
    const auto on_released = [&connection] { connection->released = true; };
    StreamSession session(&core_, &source, {options_.share_pool, on_released, options_.open_payloads, options_.open_placed}, on_hello, deny);
    status = session.Run();
  }
  SetEvent(connection->read_out);
  if (!status.ok() && !absl::IsCancelled(status)) {
    BATON_LOG(WARNING) << "KV link by " << TransportName(options_.kind)
                       << (connection->greeted ? " from " + connection->peer.worker : "") << " ended: " << status.message();
    if (!connection->greeted) {
      const absl::Status told =
          Write(*connection, EncodeMessage(MessageType::kRefused, {}, 0, EncodeError(status)));
      if (!told.ok()) BATON_LOG(DEBUG) << "which it could not be told: " << told.message();
    }
  }
  Shutdown(*connection);
  OnConnectionEnded(connection, status.ok());
  if (connection->greeted && options_.share_pool) connection->released ? WriterGone(*connection) : WatchProcess(connection);
  SetEvent(connection->gone);
  connection->finished.store(true);
}

absl::Status StreamReceiver::OnHello(const std::shared_ptr<Connection>& connection, const StreamHello& hello) {
  BATON_RETURN_IF_ERROR(core_.CheckHello(hello.hello));
  connection->peer = hello.hello.self;
  connection->link = hello.link;
  if (hello.connection > 0) {
    if (options_.share_pool) return absl::InvalidArgumentError("KV link: shared memory has one connection");
    BATON_RETURN_IF_ERROR(Join(connection, hello));
    connection->greeted = true;
    return Welcome(*connection, hello);
  }
  connection->admissions = std::make_shared<LinkAdmissions>();
  std::vector<std::shared_ptr<Connection>> older_ones;
  bool replaced;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("the receiver is stopping");
    older_ones = std::exchange(links_[connection->peer], Link{hello.link, {connection}, 0}).connections;
    replaced = !older_ones.empty();
    if (options_.share_pool) older_ones = std::exchange(watched_[connection->peer], {connection});
    connection->shares.store(options_.share_pool);
  }
  connection->greeted = true;
  // One process has one link: what it did by the older one has ended, or it would not be here.
  for (const auto& older : older_ones) {
    older->superseded.store(true);
    SetEvent(older->wake);
    Shutdown(*older);
  }
  // An Open read from the older one after this would be granted to a writer that nobody hears of again.
  const MonotonicTime deadline = Clock::Real()->Now() + options_.hello_timeout;
  for (const auto& older : older_ones) {
    if (WaitFor(-1, 0, older->read_out.get(), deadline) == Ready::kEvent) continue;
    return absl::UnavailableError(absl::StrCat("KV link: the older one of ", connection->peer.worker, " does not end"));
  }
  if (replaced) core_.events().on_link_closed(connection->peer);
  if (options_.share_pool) core_.events().on_writer_gone(connection->peer);
  BATON_LOG(INFO) << "KV link from " << connection->peer.worker << " by " << TransportName(options_.kind) << " is up";
  return Welcome(*connection, hello);
}

absl::Status StreamReceiver::Join(const std::shared_ptr<Connection>& connection, const StreamHello& hello) {
  MutexLock lock(&mutex_);
  const auto it = links_.find(connection->peer);
  if (it == links_.end() || it->second.number != hello.link) {
    return absl::FailedPreconditionError("KV link: a connection of a link that is not open");
  }
  connection->admissions = it->second.connections.front()->admissions;
  it->second.connections.push_back(connection);
  return absl::OkStatus();
}

absl::Status StreamReceiver::Welcome(Connection& connection, const StreamHello& hello) {
  const KvPool& pool = *core_.options().pool;
  StreamHello answer{.hello = core_.hello(), .link = hello.link};
  answer.num_blocks = options_.share_pool ? static_cast<uint32_t>(pool.num_blocks()) : 0;
  if (options_.share_pool) answer.memory = options_.pool_memory;
  const std::vector<uint8_t> message = EncodeMessage(MessageType::kWelcome, {}, 0, EncodeHello(answer));
  MutexLock lock(&connection.write_mutex);
  if (options_.share_pool && options_.pool_memory.empty()) return SendWithFd(connection.socket.get(), message, pool.shared_fd());
  const iovec vector = {.iov_base = const_cast<uint8_t*>(message.data()), .iov_len = message.size()};
  BATON_ASSIGN_OR_RETURN(const size_t sent, WriteNow(connection.socket.get(), std::span(&vector, 1)));
  return sent == message.size() ? absl::OkStatus() : absl::UnavailableError("the peer takes no answer");
}

void StreamReceiver::OnConnectionEnded(const std::shared_ptr<Connection>& connection, bool clean) {
  if (!connection->greeted) return;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(connection->peer);
    if (it == links_.end() || it->second.number != connection->link) return;  // Said already.
    if (!clean) {
      for (const auto& other : it->second.connections) Shutdown(*other);
    }
    if (++it->second.num_ended < static_cast<int>(it->second.connections.size())) return;
    links_.erase(it);
  }
  core_.events().on_link_closed(connection->peer);
}

// The link is gone, the process may be stopped only: it may write until it ends, or comes back.
void StreamReceiver::WatchProcess(const std::shared_ptr<Connection>& connection) {
  if (WaitFor(connection->process.get(), POLLIN, connection->wake.get(), absl::InfiniteDuration()) == Ready::kReady) WriterGone(*connection);
}

void StreamReceiver::WriterGone(const Connection& connection) {
  {
    MutexLock lock(&mutex_);
    if (connection.superseded.load()) return;
    watched_.erase(connection.peer);
  }
  core_.events().on_writer_gone(connection.peer);
}

// ---- Any thread.

void StreamReceiver::Shutdown(const Connection& connection) { shutdown(connection.socket.get(), SHUT_RDWR); }

// Answers are few and small: a peer that leaves no room for them does not read, and its link is of no use.
absl::Status StreamReceiver::Write(Connection& connection, std::span<const uint8_t> message) {
  MutexLock lock(&connection.write_mutex);
  const iovec vector = {.iov_base = const_cast<uint8_t*>(message.data()), .iov_len = message.size()};
  const absl::StatusOr<size_t> sent = WriteNow(connection.socket.get(), std::span(&vector, 1));
  if (sent.ok() && *sent == message.size()) return absl::OkStatus();
  Shutdown(connection);
  return sent.ok() ? absl::UnavailableError("the peer does not read its answers") : sent.status();
}

void StreamReceiver::Send(const PeerId& peer, MessageType type, const TransferId& transfer, int attempt,
                          std::span<const uint8_t> body) {
  std::shared_ptr<Connection> connection;
  {
    MutexLock lock(&mutex_);
    const auto it = links_.find(peer);
    if (it == links_.end()) return;
    connection = it->second.connections.front();
  }
  const absl::Status status = Write(*connection, EncodeMessage(type, transfer, attempt, body));
  if (!status.ok()) BATON_LOG(WARNING) << "KV link to " << peer.worker << ": " << status.message();
}

void StreamReceiver::Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant& grant) {
  Send(peer, MessageType::kGrant, transfer, attempt, EncodeGrant(grant));
}

void StreamReceiver::Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) {
  Send(peer, MessageType::kDeny, transfer, attempt, EncodeError(why));
}

void StreamReceiver::Abort(const PeerId& peer, const TransferId& transfer, int attempt) {
  Send(peer, MessageType::kAbort, transfer, attempt, {});
}

}  // namespace baton
