// SPDX-License-Identifier: Apache-2.0
#include "common/worker/advertised_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/worker/router_directory.h"

namespace baton {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

// Empty where there is no way.
std::string LocalAddressTowards(const std::string& address) {
  const auto target = ParseHostPort(address);
  if (!target.ok()) return "";
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST;
  if (getaddrinfo(target->host.c_str(), absl::StrCat(target->port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, FreeAddresses> owner(found);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  // A datagram socket is connected by the routing table alone.
  sockaddr_storage local = {};
  socklen_t length = sizeof local;
  char text[NI_MAXHOST] = "";
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    text[0] = '\0';
  }
  close(fd);
  return text;
}

bool IsLoopback(const std::string& host) { return host.rfind("127.", 0) == 0 || host == "::1"; }

}  // namespace

absl::StatusOr<std::string> AdvertisedAddress(const std::string& bound, const std::vector<std::string>& routers) {
  BATON_ASSIGN_OR_RETURN(const HostPort server, ParseHostPort(bound));
  if (server.host != "0.0.0.0" && server.host != "::") return bound;
  for (const std::string& router : routers) {
    const auto addresses = RouterDirectory::LookUpRouters(router);
    if (!addresses.ok()) continue;
    for (const std::string& address : *addresses) {
      if (const std::string host = LocalAddressTowards(address); !host.empty()) return FormatHostPort(host, server.port);
    }
  }
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0) {
    if (const auto addresses = RouterDirectory::LookUpRouters(FormatHostPort(name, server.port)); addresses.ok()) {
      for (const std::string& address : *addresses) {
        if (const auto own = ParseHostPort(address); own.ok() && !IsLoopback(own->host)) return address;
      }
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--listen ", bound, " is no address that others can reach, and none was found; give --advertise HOST:PORT"));
}

}  // namespace baton
