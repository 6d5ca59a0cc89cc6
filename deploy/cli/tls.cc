// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/tls.h"

#include "absl/flags/flag.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "deploy/cli/flags.h"

ABSL_FLAG(bool, tls, false, "Reach the router by TLS, which --ca, --cert and --key mean too.");
ABSL_FLAG(std::string, ca, "", "PEM certificates of the CA that the router's certificate comes from; empty: the system's.");
ABSL_FLAG(std::string, cert, "", "PEM certificate to show, where the router asks for one (its --tls-client-ca).");
ABSL_FLAG(std::string, key, "", "PEM key of --cert, without a passphrase.");

namespace baton::cli {
namespace {

TlsFiles Files() {
  return {.cert = absl::GetFlag(FLAGS_cert),
          .key = absl::GetFlag(FLAGS_key),
          .ca = absl::GetFlag(FLAGS_ca),
          .cert_flag = "--cert",
          .key_flag = "--key",
          .ca_flag = "--ca"};
}

}  // namespace

std::vector<std::string> ClientTlsFlags() { return {"tls", "ca", "cert", "key"}; }

absl::StatusOr<RouterAccess> AccessFromFlags() {
  RouterAccess access;
  BATON_ASSIGN_OR_RETURN(access.api_key, ApiKey());
  const TlsFiles files = Files();
  if (absl::GetFlag(FLAGS_tls) || files.any()) {
    BATON_ASSIGN_OR_RETURN(access.tls, OpenRpcTls(files));
  }
  return access;
}

absl::StatusOr<std::shared_ptr<const RpcTls>> OwnRouterTls() { return OpenRpcTls(Files(), {.verify_server = false}); }

absl::StatusOr<std::shared_ptr<const TlsContext>> HttpsContext() {
  BATON_ASSIGN_OR_RETURN(const TlsMaterial material, LoadTlsMaterial(Files()));
  return TlsContext::Client(material);
}

absl::StatusOr<HttpResponse> GetStatusPage(absl::string_view address, absl::string_view page, absl::Duration timeout) {
  if (!absl::ConsumePrefix(&address, "https://")) return HttpGet(address, page, timeout);
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const TlsContext> tls, HttpsContext());
  return HttpGet(address, page, timeout, tls);
}

}  // namespace baton::cli
