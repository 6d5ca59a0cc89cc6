// SPDX-License-Identifier: Apache-2.0
#include "common/text/renderer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace baton {

extern const char kRendererSource[];  // renderer/renderer.py, embedded at build time.

namespace {

constexpr char kPython[] = "/usr/bin/python3";

absl::Status SystemError(absl::string_view what, int error) {
  return absl::ResourceExhaustedError(absl::StrCat("chat template renderer: ", what, ": ", std::strerror(error)));
}

absl::Status Gone() { return absl::InternalError("chat template renderer: process ended"); }

// Closes a descriptor at the end of a scope.
struct ScopedFd {
  int fd = -1;
  ~ScopedFd() {
    if (fd >= 0) ::close(fd);
  }
  int Release() { return std::exchange(fd, -1); }
};

// posix_spawn's settings for the child.
class SpawnSettings {
 public:
  explicit SpawnSettings(int child_fd) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, child_fd, 0);
    posix_spawn_file_actions_adddup2(&actions_, child_fd, 1);
    posix_spawn_file_actions_addopen(&actions_, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    posix_spawn_file_actions_addchdir_np(&actions_, "/");
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);  // A Ctrl-C is for the parent, which drains.
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& s : *strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendererProcess>> RendererProcess::Start(const RendererLimits& limits) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return SystemError("socketpair", errno);
  ScopedFd parent{fds[0]}, child{fds[1]};
  if (::fcntl(parent.fd, F_SETFL, O_NONBLOCK) != 0) return SystemError("fcntl", errno);

  std::vector<std::string> arguments = {kPython,
                                        "-I",
                                        "-c",
                                        kRendererSource,
                                        absl::StrCat(limits.memory_bytes),
                                        absl::StrCat(limits.output_bytes),
                                        absl::StrCat(limits.cpu_seconds)};
  std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"};
  if (const char* zone = std::getenv("TZ")) environment.push_back(absl::StrCat("TZ=", zone));  // For strftime_now.
  const SpawnSettings settings(child.fd);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, kPython, settings.actions(), settings.attributes(), Pointers(&arguments).data(),
                                  Pointers(&environment).data());
  if (error == ENOENT || error == EACCES) {
    return absl::FailedPreconditionError(absl::StrCat("chat template renderer: ", kPython, ": ", std::strerror(error)));
  }
  if (error != 0) return SystemError("posix_spawn", error);
  // JSON writes a byte of text as six characters at most.
  const int64_t max_reply = std::min<int64_t>(limits.output_bytes * 6 + 65536, INT32_MAX);
  return std::unique_ptr<RendererProcess>(new RendererProcess(pid, parent.Release(), static_cast<uint32_t>(max_reply)));
}

RendererProcess::~RendererProcess() {
  ::close(fd_);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status RendererProcess::WaitFor(short events, MonotonicTime deadline) {
  while (true) {
    const double left_ms = ToMs(deadline - Clock::Real()->Now());
    if (left_ms <= 0) return absl::DeadlineExceededError("chat template renderer: no answer in time");
    pollfd poll_fd = {fd_, events, 0};
    const int n = ::poll(&poll_fd, 1, static_cast<int>(std::min(std::ceil(left_ms), 60000.0)));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return SystemError("poll", errno);
  }
}

absl::Status RendererProcess::Send(absl::string_view data, MonotonicTime deadline) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
    if (n > 0) {
      data.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      BATON_RETURN_IF_ERROR(WaitFor(POLLOUT, deadline));
    } else if (n == 0 || errno != EINTR) {
      return Gone();
    }
  }
  return absl::OkStatus();
}

absl::Status RendererProcess::Receive(char* data, size_t size, MonotonicTime deadline) {
  while (size > 0) {
    const ssize_t n = ::recv(fd_, data, size, 0);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      BATON_RETURN_IF_ERROR(WaitFor(POLLIN, deadline));
    } else if (n == 0 || errno != EINTR) {
      return Gone();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RendererProcess::ReceiveFrame(MonotonicTime deadline) {
  unsigned char header[4];
  BATON_RETURN_IF_ERROR(Receive(reinterpret_cast<char*>(header), sizeof(header), deadline));
  const uint32_t size =
      (uint32_t{header[0]} << 24) | (uint32_t{header[1]} << 16) | (uint32_t{header[2]} << 8) | header[3];
  if (size > max_reply_bytes_) {
    return absl::InternalError(
        absl::StrCat("chat template renderer: answer of ", size, " bytes, at most ", max_reply_bytes_));
  }
  std::string frame(size, '\0');
  BATON_RETURN_IF_ERROR(Receive(frame.data(), frame.size(), deadline));
  return frame;
}

absl::Status RendererProcess::WaitReady(MonotonicTime deadline) {
  if (ready_) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::string frame, ReceiveFrame(deadline));
  const nlohmann::json hello = nlohmann::json::parse(frame, nullptr, /*allow_exceptions=*/false);
  if (!hello.is_object() || !hello.contains("ready")) return Gone();
  if (hello["ready"] != true) {
    return absl::FailedPreconditionError(
        absl::StrCat("chat template renderer: ", hello.value("error", std::string("not ready"))));
  }
  ready_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RendererProcess::Call(absl::string_view request, MonotonicTime deadline) {
  const auto size = static_cast<uint32_t>(request.size());
  const char header[4] = {static_cast<char>(size >> 24), static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                          static_cast<char>(size)};
  BATON_RETURN_IF_ERROR(Send(absl::string_view(header, sizeof(header)), deadline));
  BATON_RETURN_IF_ERROR(Send(request, deadline));
  return ReceiveFrame(deadline);
}

}  // namespace baton
