// SPDX-License-Identifier: Apache-2.0
#include "common/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace baton {

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("address '", ReplaceInvalidUtf8(text), "': ", why));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return refuse("expected HOST:PORT");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  uint32_t port = 0;
  if (digits.empty() || digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return refuse("the port must be a number from 0 to 65535");
  }
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]") || host.empty()) return refuse("expected [IPV6]:PORT");
  } else if (host.find(':') != absl::string_view::npos) {
    return refuse("an IPv6 address needs brackets, [::1]:80");
  }
  if (host.empty()) host = "0.0.0.0";
  return HostPort{.host = std::string(host), .port = static_cast<uint16_t>(port)};
}

absl::Status CheckAddress(absl::string_view flag, absl::string_view text) {
  for (const char* scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::StartsWith(text, scheme)) return absl::OkStatus();
  }
  const absl::Status status = ParseHostPort(text).status();
  return status.ok() ? status : Annotate(status, flag);
}

bool IsLoopbackAddress(absl::string_view text) {
  if (absl::StartsWith(text, "unix:") || absl::StartsWith(text, "unix-abstract:")) return true;
  const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok()) return false;
  in_addr v4;
  in6_addr v6;
  if (inet_pton(AF_INET, parsed->host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, parsed->host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return parsed->host == "localhost";
}

std::string FormatHostPort(absl::string_view host, uint16_t port) {
  const bool ipv6 = host.find(':') != absl::string_view::npos;
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

}  // namespace baton
