// SPDX-License-Identifier: Apache-2.0
#include "router/router.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_tls.h"

namespace baton {
namespace {

constexpr absl::Duration kLinger = absl::Milliseconds(200);

// The server's own bound is for every service on it, the workers' registry too, and what is over it gets gRPC's words. So it
// leaves room above the clients' bound, which GenerationService keeps.
int MaxMessageBytes(size_t max_request_bytes) {
  constexpr size_t kLeast = 4 << 20, kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::clamp(max_request_bytes + max_request_bytes / 4, kLeast, kMost));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterOptions& options, ServedModel model, MetricRegistry* metrics) {
  // Clients' certificates are not the cluster's: neither end could take the other's at one address.
  if ((options.core.cluster_tls != nullptr || options.grpc_tls != nullptr) && options.registry_address.empty()) {
    return absl::InvalidArgumentError("with TLS workers need an address of their own where they register");
  }
  auto router = std::unique_ptr<Router>(new Router);
  BATON_ASSIGN_OR_RETURN(router->core_, RouterCore::Create(options.core, std::move(model), metrics));
  RouterCore* core = router->core_.get();
  if (options.http_tls != nullptr) router->certificate_expiry_.push_back(ExportExpiry(options.http_tls, metrics));
  if (options.core.cluster_tls != nullptr) router->certificate_expiry_.push_back(ExportExpiry(options.core.cluster_tls->store(), metrics));
  router->api_ = std::make_unique<HttpApi>(core);
  router->generation_ = std::make_unique<GenerationService>(core);
  router->operations_ = std::make_unique<OperationsService>(core);
  router->registry_ = std::make_unique<RegistryService>(core);
  const RpcServerOptions grpc_options = {.address = options.grpc_address,
                                         .max_message_bytes = MaxMessageBytes(options.core.max_request_bytes),
                                         .tls = options.grpc_tls};
  std::vector<grpc::Service*> services = {router->generation_.get(), router->operations_.get()};
  if (options.registry_address.empty()) {
    services.push_back(router->registry_.get());
  } else {
    BATON_ASSIGN_OR_RETURN(router->workers_, RpcServer::Start({.address = options.registry_address, .tls = options.core.cluster_tls},
                                                              {router->registry_.get()}));
  }
  BATON_ASSIGN_OR_RETURN(router->grpc_, RpcServer::Start(grpc_options, services));
  core->OnReadyChange([server = router->grpc_.get()](bool ready) { server->SetServing(ready); });
  if (!options.http_address.empty()) {
    HttpServerOptions http_options;
    http_options.address = options.http_address;
    http_options.tls = options.http_tls;
    http_options.threads = options.http_threads;
    http_options.idle_timeout = options.http_idle_timeout;
    http_options.max_body_bytes = options.core.max_request_bytes;
    BATON_ASSIGN_OR_RETURN(router->http_,
                           HttpServer::Start(http_options, [api = router->api_.get()](HttpRequest request, auto writer) {
                             api->Handle(std::move(request), std::move(writer));
                           }));
  }
  if (!options.status_address.empty()) {
    BATON_ASSIGN_OR_RETURN(router->status_, StatusServer::Start({.address = options.status_address,
                                                                 .tls = options.status_tls,
                                                                 .metrics = metrics,
                                                                 .ready = [core] { return core->Ready(); }}));
  }
  return router;
}

// Clients first: then nothing calls into the core any more but the calls to the workers, which it waits for.
Router::~Router() {
  if (core_ == nullptr) return;
  core_->StartDraining();
  core_->CutAll();
  core_->OnReadyChange(nullptr);
  http_.reset();
  status_.reset();
  grpc_.reset();
  workers_.reset();
}

void Router::StartDraining() { core_->StartDraining(); }

bool Router::Drain(absl::Duration grace) {
  StartDraining();
  const bool idle = core_->WaitUntilIdle(grace);
  if (!idle) core_->CutAll();
  // What was answered last still has to leave.
  if (http_ != nullptr) http_->Drain(absl::Seconds(1));
  generation_->WaitUntilWritten(absl::Seconds(2));
  // What clients still send (flow control, mostly) is to be read before connections are closed: the system answers the unread with a reset,
  // which costs a client that has not read its last message yet that message.
  absl::SleepFor(kLinger);
  return idle;
}

}  // namespace baton
