// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_CHANNEL_H_
#define BATON_COMMON_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace baton {

class RpcTls;

// A channel to another process of the cluster: keepalive pings also without calls, quick reconnects (100 ms to 1 s), no
// proxy, and its own connection (gRPC would share one between channels to the same address, and one frozen stream's
// buffers with it). Encrypted by `tls`; null: in the clear.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address, const std::shared_ptr<const RpcTls>& tls = nullptr);

}  // namespace baton

#endif  // BATON_COMMON_RPC_CHANNEL_H_
