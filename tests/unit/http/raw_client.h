// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_HTTP_RAW_CLIENT_H_
#define BATON_TESTS_UNIT_HTTP_RAW_CLIENT_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace baton::testing {

// A client that sends and reads bytes as they are. Every wait ends after 20 s.
class RawClient {
 public:
  // `receive_buffer`: SO_RCVBUF, so that a slow reader is slow soon; 0 leaves the system's.
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    const timeval timeout{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }

  bool Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Everything up to and with `end`; what is behind it stays for the next call. What there was, if the stream ends first.
  std::string ReadUntil(absl::string_view end) {
    size_t at;
    while ((at = received_.find(end.data(), 0, end.size())) == std::string::npos) {
      if (!Receive()) return std::exchange(received_, "");
    }
    const std::string text = received_.substr(0, at + end.size());
    received_.erase(0, text.size());
    return text;
  }

  // What there is, at least a byte; empty at the end.
  std::string ReadSome() {
    if (received_.empty()) Receive();
    return std::exchange(received_, "");
  }

  // To the end of the stream. `reset` tells whether it ended by an error.
  std::string ReadAll(bool* reset = nullptr) {
    while (Receive()) {
    }
    if (reset != nullptr) *reset = reset_;
    return std::exchange(received_, "");
  }

  void SendFin() { ::shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Closes with RST.
  void Reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }

 private:
  bool Receive() {
    char buffer[65536];
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (got > 0) received_.append(buffer, static_cast<size_t>(got));
    reset_ = got < 0;
    return got > 0;
  }

  int fd_;
  bool connected_ = false;
  bool reset_ = false;
  std::string received_;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_UNIT_HTTP_RAW_CLIENT_H_
