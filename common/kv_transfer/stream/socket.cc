// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int kSocketFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

absl::Status Failed(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

void SetOption(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

// A peer whose machine has vanished is noticed within seconds, also by an idle link.
void TuneTcp(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

struct FreeAddresses {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  return Addresses(found);
}

absl::StatusOr<Fd> ConnectOne(const addrinfo& to, absl::string_view address, MonotonicTime deadline) {
  Fd fd(socket(to.ai_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) return Failed("socket", errno);
  TuneTcp(fd.get());
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return Failed(address, errno);
  if (WaitFor(fd.get(), POLLOUT, -1, deadline) == Ready::kTimeout) return Failed(address, ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Failed(address, error);
  return fd;
}

absl::StatusOr<sockaddr_un> AbstractName(const std::string& name, socklen_t* size) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is no name of an abstract socket"));
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// IOV_MAX bounds one call.
msghdr Message(std::span<const iovec> vectors) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(vectors.data());
  message.msg_iovlen = std::min<size_t>(vectors.size(), IOV_MAX);
  return message;
}

absl::StatusOr<size_t> Received(ssize_t bytes) {
  if (bytes > 0) return static_cast<size_t>(bytes);
  if (bytes == 0) return absl::OutOfRangeError("closed by the peer");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
  return Failed("receiving", errno);
}

}  // namespace

void Fd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<Fd> ConnectTcp(const std::string& address, absl::Duration timeout) {
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  BATON_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  BATON_ASSIGN_OR_RETURN(const Addresses found, Resolve(parsed.host, parsed.port, 0));
  absl::Status last = absl::UnavailableError(absl::StrCat(address, ": no address"));
  for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
    auto fd = ConnectOne(*to, address, deadline);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return last;
}

absl::StatusOr<Fd> ListenTcp(const std::string& host, std::string* address) {
  BATON_ASSIGN_OR_RETURN(const Addresses found, Resolve(host, 0, AI_PASSIVE));
  Fd fd(socket(found->ai_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) return Failed("socket", errno);
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(fd.get(), 64) != 0) {
    return Failed(absl::StrCat("cannot listen on ", host), errno);
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return Failed("getsockname", errno);
  const uint16_t port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                          : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  *address = FormatHostPort(host, port);
  return fd;
}

absl::StatusOr<Fd> ConnectUnix(const std::string& name) {
  socklen_t size = 0;
  BATON_ASSIGN_OR_RETURN(const sockaddr_un address, AbstractName(name, &size));
  Fd fd(socket(AF_UNIX, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) return Failed("socket", errno);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return Failed(absl::StrCat("socket @", name), errno);
  }
  return fd;
}

absl::StatusOr<Fd> ListenUnix(const std::string& name) {
  socklen_t size = 0;
  BATON_ASSIGN_OR_RETURN(const sockaddr_un address, AbstractName(name, &size));
  Fd fd(socket(AF_UNIX, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) return Failed("socket", errno);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(fd.get(), 64) != 0) {
    return Failed(absl::StrCat("cannot listen on socket @", name), errno);
  }
  return fd;
}

Fd MakeEvent() { return Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void SetEvent(const Fd& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event.get(), &one, sizeof(one));  // Full is set, too.
}

int PollMilliseconds(absl::Duration left) {
  // Bounded before the conversion: an infinite duration is the largest integer, to which nothing can be added.
  constexpr absl::Duration kLongest = absl::Seconds(1000);
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kLongest))) + 1;
}

Ready WaitFor(int fd, short poll_events, int event, MonotonicTime deadline) {
  while (true) {
    pollfd fds[2] = {{.fd = fd, .events = poll_events, .revents = 0}, {.fd = event, .events = POLLIN, .revents = 0}};
    const int found = poll(fds, 2, PollMilliseconds(deadline - Clock::Real()->Now()));
    if (found > 0 && fds[1].revents != 0) return Ready::kEvent;
    if (found > 0) return Ready::kReady;
    if (found == 0 && Clock::Real()->Now() >= deadline) return Ready::kTimeout;
  }
}

absl::StatusOr<size_t> ReadNow(int fd, std::span<const iovec> to) {
  msghdr message = Message(to);
  return Received(recvmsg(fd, &message, MSG_DONTWAIT));
}

absl::StatusOr<size_t> WriteNow(int fd, std::span<const iovec> from) {
  msghdr message = Message(from);
  const ssize_t bytes = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes >= 0) return static_cast<size_t>(bytes);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
  return Failed("sending", errno);
}

absl::Status SendWithFd(int socket, std::span<const uint8_t> bytes, int fd) {
  const iovec vector = {.iov_base = const_cast<uint8_t*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message = Message(std::span(&vector, 1));
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return Failed("sending a descriptor", sent < 0 ? errno : EMSGSIZE);
}

absl::StatusOr<size_t> ReadNowWithFd(int socket, std::span<uint8_t> to, Fd* fd) {
  const iovec vector = {.iov_base = to.data(), .iov_len = to.size()};
  msghdr message = Message(std::span(&vector, 1));
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const absl::StatusOr<size_t> bytes = Received(recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
  if (!bytes.ok() || *bytes == 0) return bytes;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int received;
    std::memcpy(&received, CMSG_DATA(header), sizeof(received));
    *fd = Fd(received);
  }
  return bytes;
}

absl::StatusOr<Fd> ProcessOfPeer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Failed("SO_PEERCRED", errno);
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("shared memory is for one user: peer uid ", peer.uid, ", local ", geteuid()));
  }
  if (peer.pid <= 0) return absl::UnavailableError("the peer is in another process namespace");
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process) return Failed("pidfd_open", errno);
  // Had the peer ended before, its number could be another process's by now; but then the connection has ended as well.
  pollfd hung = {.fd = socket, .events = POLLRDHUP, .revents = 0};
  if (poll(&hung, 1, 0) > 0 && (hung.revents & (POLLRDHUP | POLLHUP)) != 0) {
    return absl::UnavailableError("the peer has gone already");
  }
  return process;
}

}  // namespace baton
