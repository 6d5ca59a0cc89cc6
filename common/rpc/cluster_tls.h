// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_CLUSTER_TLS_H_
#define BATON_COMMON_RPC_CLUSTER_TLS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/rpc_tls.h"

namespace baton {

// The flags of TLS between the processes of a cluster, which all of them have: --cluster-tls-cert, -key, -ca and -name. Names
// for --help and the configuration.
std::vector<std::string> ClusterTlsFlags();

// As the flags say; null without them. It is always mutual: whoever has a certificate of the CA is a part of the cluster.
//   INVALID_ARGUMENT  not all of the three files are given, or one is wrong: TlsFiles.
absl::StatusOr<std::shared_ptr<const RpcTls>> OpenClusterTls();

// The same certificate for a status server, which asks nobody for one; null without the flags.
absl::StatusOr<std::shared_ptr<TlsStore>> OpenClusterStatusTls();

}  // namespace baton

#endif  // BATON_COMMON_RPC_CLUSTER_TLS_H_
