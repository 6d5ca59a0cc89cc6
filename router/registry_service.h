// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_REGISTRY_SERVICE_H_
#define BATON_ROUTER_REGISTRY_SERVICE_H_

#include <cstdint>
#include <string>

#include "baton/internal/registry.grpc.pb.h"
#include "router/worker_registry.h"

namespace baton {

// The Register streams of the workers, over WorkerRegistry. A stream is answered once, after the identity.
//   INVALID_ARGUMENT     the first message is no identity, or lacks a field.
//   ALREADY_EXISTS       the id is another live worker's.
//   ABORTED              another run of the worker has registered.
class RegistryService : public internal::Registry::CallbackService {
 public:
  RegistryService(WorkerRegistry* registry, std::string router_id, uint64_t incarnation)
      : registry_(registry), router_id_(std::move(router_id)), incarnation_(incarnation) {}

  grpc::ServerBidiReactor<internal::WorkerReport, internal::RouterReply>* Register(
      grpc::CallbackServerContext* context) override;

 private:
  WorkerRegistry* const registry_;
  const std::string router_id_;
  const uint64_t incarnation_;
};

}  // namespace baton

#endif  // BATON_ROUTER_REGISTRY_SERVICE_H_
