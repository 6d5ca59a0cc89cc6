// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_RPC_TLS_H_
#define BATON_COMMON_RPC_RPC_TLS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tls/tls_store.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace baton {

struct RpcTlsOptions {
  std::string peer_name;      // What the certificates of servers must be for; empty: the name or address they are reached by.
  bool verify_server = true;  // False: encrypted, but with whoever answers. For a server that this process has started itself.
};

// One end's certificates as gRPC credentials. Changes of the files reach handshakes within two seconds. Thread-safe.
class RpcTls {
 public:
  // `store` has a certificate where servers are made with it. A server asks for certificates of `ca` where there is one.
  //   UNAVAILABLE  out of descriptors.
  static absl::StatusOr<std::shared_ptr<const RpcTls>> Create(std::shared_ptr<TlsStore> store, const RpcTlsOptions& options = {});
  ~RpcTls();

  std::shared_ptr<grpc::ServerCredentials> server() const;
  std::shared_ptr<grpc::ChannelCredentials> channel() const;
  const std::string& peer_name() const;
  const std::shared_ptr<TlsStore>& store() const;

 private:
  struct State;
  explicit RpcTls(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// The same from files.
absl::StatusOr<std::shared_ptr<const RpcTls>> OpenRpcTls(const TlsFiles& files, const RpcTlsOptions& options = {});

}  // namespace baton

#endif  // BATON_COMMON_RPC_RPC_TLS_H_
