// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/confidential_transports.h"

#include "absl/strings/str_cat.h"

namespace baton {

std::vector<TransportKind> ConfidentialTransports(std::span<const TransportKind> kinds) {
  std::vector<TransportKind> confidential;
  for (const TransportKind kind : kinds) {
    if (TransportOf(kind).reach != TransportInfo::Reach::kNetwork || kind == TransportKind::kGrpc) confidential.push_back(kind);
  }
  return confidential;
}

std::string AnnouncedTransport(TransportKind kind, bool tls) {
  return absl::StrCat(TransportName(kind), tls && kind == TransportKind::kGrpc ? "+tls" : "");
}

}  // namespace baton
