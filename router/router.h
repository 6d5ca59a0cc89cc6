// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_ROUTER_H_
#define BATON_ROUTER_ROUTER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/metrics.h"
#include "common/http/http_server.h"
#include "common/http/status_server.h"
#include "common/rpc/server.h"
#include "router/generation_service.h"
#include "router/http_api.h"
#include "router/operations_service.h"
#include "router/registry_service.h"
#include "router/router_core.h"

namespace baton {

struct RouterOptions {
  RouterCoreOptions core;
  std::string grpc_address = "127.0.0.1:9000";  // baton.v1, and the workers' Registry where it has no address of its own.
  std::string registry_address;                 // Served with core.cluster_tls; needed with that or grpc_tls. Empty: none.
  std::string http_address = "127.0.0.1:8000";  // Empty: none.
  std::string status_address;                   // Empty: none.
  int http_threads = 2;
  absl::Duration http_idle_timeout = absl::Seconds(75);  // Of a connection between requests.
  // Of the clients' addresses; null: in the clear. Both have the same files.
  std::shared_ptr<const RpcTls> grpc_tls;
  std::shared_ptr<TlsStore> http_tls, status_tls;
};

// A whole router: the core and its servers.
class Router {
 public:
  // Serves when it returns.
  //   INVALID_ARGUMENT  TLS without an address of its own for the workers' registry.
  //   INVALID_ARGUMENT, UNAVAILABLE, FAILED_PRECONDITION  as the core's and the servers' Start.
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterOptions& options, ServedModel model,
                                                       MetricRegistry* metrics);
  ~Router();

  RouterCore* core() { return core_.get(); }
  const std::string& grpc_address() const { return grpc_->address(); }
  // Where workers register.
  const std::string& registry_address() const { return workers_ == nullptr ? grpc_->address() : workers_->address(); }
  std::string http_address() const { return http_ == nullptr ? "" : http_->address(); }
  std::string status_address() const { return status_ == nullptr ? "" : status_->address(); }

  // Not ready from now on: new requests are refused, running ones go on.
  void StartDraining();
  // Waits for running requests, at most `grace`; what is left then is ended with UNAVAILABLE. True when nothing was cut.
  bool Drain(absl::Duration grace);

 private:
  Router() = default;

  std::vector<std::shared_ptr<MetricRegistry::Callback>> certificate_expiry_;
  std::unique_ptr<RouterCore> core_;
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<GenerationService> generation_;
  std::unique_ptr<OperationsService> operations_;
  std::unique_ptr<RegistryService> registry_;
  std::unique_ptr<StatusServer> status_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RpcServer> grpc_, workers_;
};

}  // namespace baton

#endif  // BATON_ROUTER_ROUTER_H_
