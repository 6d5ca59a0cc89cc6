// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_TLS_FLAGS_H_
#define BATON_ROUTER_TLS_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/router.h"

namespace baton {

// The router's flags of TLS, towards clients and within the cluster: names for --help and the configuration.
std::vector<std::string> RouterTlsFlags();

// Opens what the flags name.
//   INVALID_ARGUMENT  flags that need each other, or a file that is wrong; names flag, file and reason.
absl::Status ReadTlsFlags(RouterOptions* options);

// Whether nobody gets in at the clients' addresses without a certificate.
bool ClientsShowCertificates();

}  // namespace baton

#endif  // BATON_ROUTER_TLS_FLAGS_H_
