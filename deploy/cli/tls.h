// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_TLS_H_
#define BATON_DEPLOY_CLI_TLS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/http/http_client.h"
#include "common/rpc/rpc_tls.h"
#include "deploy/cli/router_client.h"

namespace baton::cli {

// --tls, --ca, --cert and --key: how the client commands reach a router.
std::vector<std::string> ClientTlsFlags();

// These and --api-key-file. Each TLS file means TLS, with or without --tls.
//   Codes of ApiKey. INVALID_ARGUMENT: a file that is wrong, LoadTlsMaterial.
absl::StatusOr<RouterAccess> AccessFromFlags();

// For `baton serve`, which asks the router that it has started itself, by TLS: it shows --cert, and takes whoever answers.
absl::StatusOr<std::shared_ptr<const RpcTls>> OwnRouterTls();

// The same files for HTTPS; without any the system's CAs.
absl::StatusOr<std::shared_ptr<const TlsContext>> HttpsContext();

// GET of a page of a status server, at HOST:PORT or https://HOST:PORT.
//   Codes of HttpGet and HttpsContext.
absl::StatusOr<HttpResponse> GetStatusPage(absl::string_view address, absl::string_view page, absl::Duration timeout);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_TLS_H_
