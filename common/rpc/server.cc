// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"


#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/monotonic_deadline.h"
#include "common/rpc/rpc_tls.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"

namespace baton {

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            const std::vector<grpc::Service*>& services) {
  KeepCallbackThreads();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto server = std::unique_ptr<RpcServer>(new RpcServer);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options.address, options.tls == nullptr ? grpc::InsecureServerCredentials() : options.tls->server(),
                           &server->port_);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  // Two processes on one port would silently share its calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A peer that vanished without a FIN is noticed within seconds, also by idle streams.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  for (grpc::Service* service : services) builder.RegisterService(service);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || (server->port_ == 0 && !absl::StartsWith(options.address, "unix:"))) {
    return absl::UnavailableError(absl::StrCat("cannot listen on gRPC address ", options.address,
                                               ": in use, not this machine's, or not HOST:PORT"));
  }
  server->address_ = options.address;
  const size_t colon = server->address_.rfind(':');
  if (colon != std::string::npos && server->address_.substr(colon) == ":0") {
    server->address_ = absl::StrCat(server->address_.substr(0, colon + 1), server->port_);
  }
  server->SetServing(true);
  return server;
}

RpcServer::~RpcServer() { Drain(absl::ZeroDuration()); }

void RpcServer::SetServing(bool serving) {
  if (server_ != nullptr && server_->GetHealthCheckService() != nullptr) {
    server_->GetHealthCheckService()->SetServingStatus(serving);
  }
}

void RpcServer::Drain(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(MonotonicDeadline(grace));
}

}  // namespace baton
