// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench_kv/raw_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/tcp/tcp_transport.h"

namespace baton::bench {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<RawWay>> RawTcp::Create() {
  auto raw = std::unique_ptr<RawTcp>(new RawTcp);
  std::string address;
  BATON_ASSIGN_OR_RETURN(const Fd listening, ListenTcp("127.0.0.1", &address));
  for (int i = 0; i < TcpKvLinkOptions().num_connections; ++i) {
    BATON_ASSIGN_OR_RETURN(Fd sender, ConnectTcp(address, kPatience));
    if (WaitFor(listening.get(), POLLIN, -1, Clock::Real()->Now() + kPatience) != Ready::kReady) {
      return absl::UnavailableError("no connection to this machine itself");
    }
    raw->senders_.push_back(std::move(sender));
    raw->receivers_.emplace_back(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  for (size_t i = 0; i < raw->receivers_.size(); ++i) {
    raw->threads_.emplace_back("raw-recv", [self = raw.get(), i] { self->Receive(i); });
  }
  return std::unique_ptr<RawWay>(std::move(raw));
}

RawTcp::~RawTcp() {
  for (const Fd& sender : senders_) shutdown(sender.get(), SHUT_RDWR);
}

void RawTcp::Receive(size_t connection) {
  const int socket = receivers_[connection].get();
  uint8_t nothing;  // Where the end of the stream is read to.
  int64_t sending = 0;
  size_t at = 0, end = 0;  // What is missing of the connection's piece.
  while (true) {
    WaitFor(socket, POLLIN, -1, absl::InfiniteDuration());
    iovec vector = {.iov_base = &nothing, .iov_len = 1};
    {
      MutexLock lock(&mutex_);
      if (sending != sending_) {
        sending = sending_;
        at = end = connection * kPieceBytes;
      } else if (at == end) {
        end += (receivers_.size() - 1) * kPieceBytes;  // Pieces in between are other connections'.
        at = end;
      }
      if (at == end) end = std::min(at + kPieceBytes, std::max(at, destination_.size()));
      if (at < end) vector = {.iov_base = destination_.data() + at, .iov_len = end - at};
    }
    const absl::StatusOr<size_t> bytes = ReadNow(socket, std::span(&vector, 1));
    if (!bytes.ok()) return;
    at += *bytes;
    MutexLock lock(&mutex_);
    received_ += static_cast<int64_t>(*bytes);
    if (received_ >= wanted_) changed_.NotifyAll();
  }
}

absl::StatusOr<absl::Duration> RawTcp::Send(std::span<const uint8_t> source, std::span<uint8_t> destination) {
  const MonotonicTime begin = Clock::Real()->Now();
  {
    MutexLock lock(&mutex_);
    ++sending_;
    destination_ = destination;
    received_ = 0;
    wanted_ = static_cast<int64_t>(source.size());
  }
  for (size_t next = 0; !source.empty(); next = (next + 1) % senders_.size()) {
    std::span<const uint8_t> piece = source.first(std::min(source.size(), kPieceBytes));
    source = source.subspan(piece.size());
    while (!piece.empty()) {
      const iovec vector = {.iov_base = const_cast<uint8_t*>(piece.data()), .iov_len = piece.size()};
      BATON_ASSIGN_OR_RETURN(const size_t sent, WriteNow(senders_[next].get(), std::span(&vector, 1)));
      piece = piece.subspan(sent);
      if (sent == 0) WaitFor(senders_[next].get(), POLLOUT, -1, begin + kPatience);
    }
  }
  MutexLock lock(&mutex_);
  while (received_ < wanted_) {
    if (Clock::Real()->Now() - begin > kPatience) return absl::DeadlineExceededError("the raw stream does not end");
    changed_.WaitFor(&mutex_, kPatience);
  }
  return Clock::Real()->Now() - begin;
}

}  // namespace baton::bench
