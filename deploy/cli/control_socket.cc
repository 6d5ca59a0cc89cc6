// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/control_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"

namespace baton::cli {
namespace {

constexpr size_t kMaxBytes = 64 << 10;
constexpr int kMaxAtOnce = 16;

struct Address {
  sockaddr_un name = {.sun_family = AF_UNIX};
  socklen_t size = 0;
};

Address AddressOf(uint16_t router_port) {
  Address address;
  const std::string name = absl::StrCat("baton-serve-", router_port);
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());  // Abstract: no file to leave behind.
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string Reason() { return std::strerror(errno); }

// The kernel names the sender of what is sent from now on. A socket of its own for each; -1 as socket() says it.
int OpenSocket() {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  return fd;
}

struct Message {
  std::string text;
  Address from;
  std::optional<uid_t> user;  // From the kernel.
};

// Nothing when none waits.
std::optional<Message> Receive(int fd) {
  Message received;
  received.text.resize(kMaxBytes);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  iovec bytes = {.iov_base = received.text.data(), .iov_len = received.text.size()};
  msghdr header = {.msg_name = &received.from.name, .msg_namelen = sizeof received.from.name, .msg_iov = &bytes, .msg_iovlen = 1,
                   .msg_control = control, .msg_controllen = sizeof control};
  const ssize_t size = recvmsg(fd, &header, MSG_DONTWAIT);
  if (size < 0) return std::nullopt;
  received.text.resize(static_cast<size_t>(size));
  received.from.size = header.msg_namelen;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender;
    std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
    received.user = sender.uid;
  }
  return received;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlSocket>> ControlSocket::Open(uint16_t router_port) {
  const int fd = OpenSocket();
  const Address address = AddressOf(router_port);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) {
    const std::string reason = Reason();
    if (fd >= 0) close(fd);
    return absl::UnavailableError(absl::StrCat("control socket of port ", router_port, ": ", reason));
  }
  return std::unique_ptr<ControlSocket>(new ControlSocket(fd));
}

ControlSocket::~ControlSocket() { close(fd_); }

void ControlSocket::Serve(const std::function<std::string(absl::string_view)>& answer) {
  for (int i = 0; i < kMaxAtOnce; ++i) {
    const std::optional<Message> request = Receive(fd_);
    if (!request) return;
    if (!request->user || (*request->user != geteuid() && *request->user != 0)) {
      BATON_LOG(WARNING) << "a request of another user is not answered";
      continue;
    }
    const std::string reply = answer(request->text);
    // Whoever does not take it is gone.
    (void)sendto(fd_, reply.data(), std::min(reply.size(), kMaxBytes), MSG_DONTWAIT | MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&request->from.name), request->from.size);
  }
}

absl::StatusOr<std::string> AskServe(uint16_t router_port, absl::string_view request, absl::Duration timeout) {
  const int fd = OpenSocket();
  if (fd < 0) return absl::UnavailableError(absl::StrCat("socket: ", Reason()));
  const sockaddr_un own = {.sun_family = AF_UNIX};
  const Address address = AddressOf(router_port);
  absl::StatusOr<std::string> result = absl::UnavailableError("");
  pollfd readable = {.fd = fd, .events = POLLIN};
  const int timeout_ms = static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 1, 1 << 30));
  // A name of its own, drawn by the kernel, for the reply. Once connected only the one that was asked can send to it.
  if (bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(sa_family_t)) != 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0 ||
      send(fd, request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    result = absl::UnavailableError(
        absl::StrCat("no `baton serve` of this machine and user runs a router at port ", router_port, " (--router): ", Reason()));
  } else if (poll(&readable, 1, timeout_ms) <= 0) {
    result = absl::DeadlineExceededError(absl::StrCat("`baton serve` did not answer within ", absl::FormatDuration(timeout)));
  } else if (std::optional<Message> reply = Receive(fd); !reply) {
    result = absl::UnavailableError(absl::StrCat("`baton serve`: ", Reason()));
  } else if (geteuid() != 0 && reply->user != geteuid() && reply->user != uid_t{0}) {
    result = absl::PermissionDeniedError(absl::StrCat("what answers for the router at port ", router_port, " is another user's"));
  } else {
    result = std::move(reply->text);
  }
  close(fd);
  return result;
}

}  // namespace baton::cli
