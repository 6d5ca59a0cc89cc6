// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CONFIDENTIAL_TRANSPORTS_H_
#define BATON_COMMON_KV_TRANSFER_CONFIDENTIAL_TRANSPORTS_H_

#include <span>
#include <string>
#include <vector>

#include "common/kv_transfer/transport_kind.h"

namespace baton {

// Of `kinds` those by which no KV leaves the machine in the clear, where the workers' gRPC is under TLS.
std::vector<TransportKind> ConfidentialTransports(std::span<const TransportKind> kinds);

// What a worker calls a kind towards routers, which compare and show the names: "grpc+tls" where its gRPC is under TLS, for the
// two do not work together.
std::string AnnouncedTransport(TransportKind kind, bool tls);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CONFIDENTIAL_TRANSPORTS_H_
