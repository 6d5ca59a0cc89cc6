// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/channel.h"

#include "common/rpc/rpc_tls.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace baton {

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& address, const std::shared_ptr<const RpcTls>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name the time that one attempt to connect may take; after a refusal the backoff alone counts. A busy
  // machine needs more than its 100 ms for the first frames.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A call that a restarted worker would serve without having promised anything must fail instead (protocol rule W2).
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (tls == nullptr) return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!tls->peer_name().empty()) arguments.SetSslTargetNameOverride(tls->peer_name());
  return grpc::CreateCustomChannel(address, tls->channel(), arguments);
}

}  // namespace baton
