// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_SERVER_H_
#define BATON_COMMON_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"

namespace baton {

class RpcTls;

struct RpcServerOptions {
  std::string address = "127.0.0.1:0";  // HOST:PORT, [v6]:PORT or unix:PATH; port 0 picks a free one.
  int max_message_bytes = 64 << 20;     // KV travels in bounded frames; this bounds prompts and log-probabilities.
  std::shared_ptr<const RpcTls> tls;    // With a certificate; null: in the clear.
};

// A gRPC server with health checking and reflection. Owns no services: they outlive it.
class RpcServer {
 public:
  //   UNAVAILABLE  the address cannot be bound; the message names it.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          const std::vector<grpc::Service*>& services);
  // Shuts down at once: open calls are cancelled.
  ~RpcServer();

  // As given, with the real port in place of 0.
  const std::string& address() const { return address_; }
  int port() const { return port_; }
  grpc::Server* server() { return server_.get(); }

  // What the health service answers for the server as a whole ("").
  void SetServing(bool serving);

  // Refuses new calls and waits for open ones; those still open after `grace` are cancelled.
  void Drain(absl::Duration grace);

 private:
  RpcServer() = default;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_SERVER_H_
