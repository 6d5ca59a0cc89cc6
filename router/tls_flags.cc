// SPDX-License-Identifier: Apache-2.0
#include "router/tls_flags.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/cluster_tls.h"

ABSL_FLAG(std::string, tls_cert, "", "PEM certificate (and those up to the CA) of --grpc and --http, which then speak TLS alone. Read again when it changes.");
ABSL_FLAG(std::string, tls_key, "", "PEM key of --tls-cert, without a passphrase.");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM certificates of the CA that every client has to have a certificate of; empty: clients need none.");
ABSL_FLAG(bool, status_tls, false, "--status speaks TLS as well, with --tls-cert and without asking for certificates.");

namespace baton {

std::vector<std::string> RouterTlsFlags() {
  std::vector<std::string> names = {"tls_cert", "tls_key", "tls_client_ca", "status_tls"};
  for (std::string& name : ClusterTlsFlags()) names.push_back(std::move(name));
  return names;
}

absl::Status ReadTlsFlags(RouterOptions* options) {
  TlsFiles files = {.cert = absl::GetFlag(FLAGS_tls_cert), .key = absl::GetFlag(FLAGS_tls_key), .ca = absl::GetFlag(FLAGS_tls_client_ca)};
  if (files.any()) {
    if (files.cert.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(files.key.empty() ? files.ca_flag : files.key_flag, " needs --tls-cert and --tls-key"));
    }
    BATON_ASSIGN_OR_RETURN(options->http_tls, TlsStore::Open(files));
    BATON_ASSIGN_OR_RETURN(options->grpc_tls, RpcTls::Create(options->http_tls));
  }
  if (absl::GetFlag(FLAGS_status_tls)) {
    if (files.cert.empty()) return absl::InvalidArgumentError("--status-tls needs --tls-cert and --tls-key");
    files.ca.clear();
    BATON_ASSIGN_OR_RETURN(options->status_tls, TlsStore::Open(files));
  }
  BATON_ASSIGN_OR_RETURN(options->core.cluster_tls, OpenClusterTls());
  const bool mutual = options->core.cluster_tls != nullptr;
  if (!options->registry_address.empty() || (options->grpc_tls == nullptr && !mutual)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(mutual ? "--cluster-tls-cert" : "--tls-cert", " needs --registry HOST:PORT, where workers register ",
                                                 mutual ? "with certificates of the cluster" : "in the clear; --grpc is then for clients alone"));
}

bool ClientsShowCertificates() { return !absl::GetFlag(FLAGS_tls_client_ca).empty(); }

}  // namespace baton
