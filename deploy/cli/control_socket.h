// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_CONTROL_SOCKET_H_
#define BATON_DEPLOY_CLI_CONTROL_SOCKET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton::cli {

// Where `baton serve` is told things by commands of the same machine (network namespace) and user, or root: an abstract
// datagram socket, named after the port of the router that it runs. One request, one reply, of at most 64 KiB each. One thread.
class ControlSocket {
 public:
  //   UNAVAILABLE  somebody else has it.
  static absl::StatusOr<std::unique_ptr<ControlSocket>> Open(uint16_t router_port);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // For poll(): readable when a request waits.
  int fd() const { return fd_; }
  // Answers what waits, at most 16 requests. Never blocks.
  void Serve(const std::function<std::string(absl::string_view request)>& answer);

 private:
  explicit ControlSocket(int fd) : fd_(fd) {}
  const int fd_;
};

// Asks the `baton serve` whose router has this port.
//   UNAVAILABLE        there is none.
//   PERMISSION_DENIED  another user's process has its place.
//   DEADLINE_EXCEEDED  no reply within `timeout`; so also where it is another user's, who is not answered.
absl::StatusOr<std::string> AskServe(uint16_t router_port, absl::string_view request, absl::Duration timeout);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_CONTROL_SOCKET_H_
