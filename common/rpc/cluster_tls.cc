// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cluster_tls.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

ABSL_FLAG(std::string, cluster_tls_cert, "", "PEM certificate of this process (and those up to the CA) for TLS between router and workers, which is always "
          "mutual. Read again when it changes.");
ABSL_FLAG(std::string, cluster_tls_key, "", "PEM key of --cluster-tls-cert, without a passphrase.");
ABSL_FLAG(std::string, cluster_tls_ca, "", "PEM certificates of the cluster's CA: whoever has a certificate of it is a part of the cluster.");
ABSL_FLAG(std::string, cluster_tls_name, "", "Name that the certificates of router and workers have in common; empty: each has the name or address "
          "that it is reached by.");

namespace baton {
namespace {

TlsFiles Files() {
  return {.cert = absl::GetFlag(FLAGS_cluster_tls_cert),
          .key = absl::GetFlag(FLAGS_cluster_tls_key),
          .ca = absl::GetFlag(FLAGS_cluster_tls_ca),
          .cert_flag = "--cluster-tls-cert",
          .key_flag = "--cluster-tls-key",
          .ca_flag = "--cluster-tls-ca"};
}

}  // namespace

std::vector<std::string> ClusterTlsFlags() { return {"cluster_tls_cert", "cluster_tls_key", "cluster_tls_ca", "cluster_tls_name"}; }

absl::StatusOr<std::shared_ptr<const RpcTls>> OpenClusterTls() {
  const TlsFiles files = Files();
  const std::string name = absl::GetFlag(FLAGS_cluster_tls_name);
  if (!files.any() && name.empty()) return nullptr;
  for (const auto& [flag, value] : {std::pair(files.cert_flag, files.cert), {files.key_flag, files.key}, {files.ca_flag, files.ca}}) {
    if (value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is missing: TLS between router and workers is mutual and needs certificate, key and CA"));
    }
  }
  return OpenRpcTls(files, {.peer_name = name});
}

absl::StatusOr<std::shared_ptr<TlsStore>> OpenClusterStatusTls() {
  TlsFiles files = Files();
  files.ca.clear();
  if (files.cert.empty()) return nullptr;
  return TlsStore::Open(files);
}

}  // namespace baton
