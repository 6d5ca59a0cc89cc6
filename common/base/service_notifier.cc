// SPDX-License-Identifier: Apache-2.0
#include "common/base/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace baton {
namespace {

constexpr absl::Duration kMaxInterval = absl::Seconds(10);
constexpr absl::Duration kRestart = absl::Minutes(10);  // As the units' TimeoutStartSec.

// "STATUS=..." on one line: a line end would begin the next assignment.
std::string StatusLine(absl::string_view status) {
  return absl::StrCat("STATUS=", absl::StrReplaceAll(status, {{"\n", " "}}));
}

}  // namespace

ServiceNotifier::ServiceNotifier(const Environment& environment) {
  path_ = environment("NOTIFY_SOCKET").value_or("");
  if (path_.size() < 2 || (path_[0] != '/' && path_[0] != '@') || path_.size() >= sizeof(sockaddr_un::sun_path)) return;
  fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return;
  interval_ = kMaxInterval;
  int64_t usec = 0, pid = 0;
  const std::optional<std::string> watched = environment("WATCHDOG_PID");
  if (watched && (!absl::SimpleAtoi(*watched, &pid) || pid != getpid())) return;  // Another process is watched.
  if (absl::SimpleAtoi(environment("WATCHDOG_USEC").value_or(""), &usec) && usec > 0) {
    interval_ = std::min(kMaxInterval, absl::Microseconds(usec) / 2);
    watchdog_usec_ = usec;
  }
}

ServiceNotifier::~ServiceNotifier() {
  if (fd_ >= 0) close(fd_);
}

void ServiceNotifier::Started(absl::string_view status) {
  const std::string watchdog = watchdog_usec_ > 0 ? absl::StrCat("WATCHDOG_USEC=", watchdog_usec_, "\n") : "";
  Send(absl::StrCat("READY=1\n", watchdog, StatusLine(status)));
}
void ServiceNotifier::Restarting(absl::string_view status) {
  const std::string watchdog = watchdog_usec_ > 0 ? absl::StrCat("WATCHDOG=1\nWATCHDOG_USEC=", absl::ToInt64Microseconds(kRestart), "\n") : "";
  Send(absl::StrCat(watchdog, StatusLine(status)));
}
void ServiceNotifier::Alive(absl::string_view status) { Send(absl::StrCat("WATCHDOG=1\n", StatusLine(status))); }
void ServiceNotifier::Stuck(absl::string_view status) { Send(StatusLine(status)); }
void ServiceNotifier::Stopping(absl::string_view status) { Send(absl::StrCat("STOPPING=1\n", StatusLine(status))); }

void ServiceNotifier::Send(const std::string& message) {
  if (fd_ < 0) return;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';
  // An abstract name ends where the length says; a file's name may, too.
  const socklen_t length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  // The answer changes nothing: there is no other way to reach the supervisor.
  [[maybe_unused]] const ssize_t sent =
      sendto(fd_, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace baton
