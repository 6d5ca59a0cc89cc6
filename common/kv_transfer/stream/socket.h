// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_SOCKET_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_SOCKET_H_

#include <sys/uio.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset();

 private:
  int fd_ = -1;
};

// All sockets are non-blocking and close on exec.

// HOST:PORT, by name or number. UNAVAILABLE: refused, unreachable, or no answer within `timeout`.
absl::StatusOr<Fd> ConnectTcp(const std::string& address, absl::Duration timeout);
// A free port of `host`; *address becomes HOST:PORT. UNAVAILABLE names the host.
absl::StatusOr<Fd> ListenTcp(const std::string& host, std::string* address);
// An abstract Unix socket: a name in this network namespace, gone with the last descriptor.
absl::StatusOr<Fd> ConnectUnix(const std::string& name);
absl::StatusOr<Fd> ListenUnix(const std::string& name);

// Something that another thread can wait for, once it is set.
Fd MakeEvent();
void SetEvent(const Fd& event);

// poll(2)'s timeout for what is left: rounded up to whole milliseconds, at most 1000 s, 0 when nothing is left.
int PollMilliseconds(absl::Duration left);

enum class Ready { kReady, kEvent, kTimeout };
// Waits until `fd` has one of `poll_events` (or an error, which the next call on it will report), `event` is set, or the
// deadline has passed. `event` may be -1.
Ready WaitFor(int fd, short poll_events, int event, MonotonicTime deadline);

// Bytes moved without waiting: 0 when there is none (to read) or no room. OUT_OF_RANGE: the peer has closed. UNAVAILABLE: the
// connection is broken.
absl::StatusOr<size_t> ReadNow(int fd, std::span<const iovec> to);
absl::StatusOr<size_t> WriteNow(int fd, std::span<const iovec> from);

// Descriptors beside a byte, on a Unix socket.
absl::Status SendWithFd(int socket, std::span<const uint8_t> bytes, int fd);
// As ReadNow into one buffer; a descriptor that came along is stored in *fd.
absl::StatusOr<size_t> ReadNowWithFd(int socket, std::span<uint8_t> to, Fd* fd);

// The process at the other end of a Unix socket.
//   PERMISSION_DENIED  another user's. UNAVAILABLE  it cannot be told when that process ends.
absl::StatusOr<Fd> ProcessOfPeer(int socket);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_SOCKET_H_
