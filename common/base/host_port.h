// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_HOST_PORT_H_
#define BATON_COMMON_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

struct HostPort {
  std::string host;  // Without brackets.
  uint16_t port = 0;
};

// "127.0.0.1:80", "[::1]:80", "name:80", ":80" (every address, "0.0.0.0").
//   INVALID_ARGUMENT  no port, a port over 65535, or an IPv6 address without brackets.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// Whether gRPC can be told to connect to or listen at `text`: HOST:PORT as above, or with a scheme of gRPC's own
// ("unix:/path", "dns:///name:80"), which is not looked into. gRPC itself would take port 99999 for 34463.
//   INVALID_ARGUMENT  as ParseHostPort, with `flag` in front.
absl::Status CheckAddress(absl::string_view flag, absl::string_view text);

// Whether only this machine reaches `text`: a loopback address, "localhost", or a Unix socket.
bool IsLoopbackAddress(absl::string_view text);

// The text that ParseHostPort reads back.
std::string FormatHostPort(absl::string_view host, uint16_t port);

}  // namespace baton

#endif  // BATON_COMMON_BASE_HOST_PORT_H_
