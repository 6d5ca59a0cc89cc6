// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_REGISTRY_SERVICE_H_
#define BATON_ROUTER_REGISTRY_SERVICE_H_

#include <cstdint>
#include <string>

#include "baton/internal/registry.grpc.pb.h"
#include "router/router_core.h"

namespace baton {

// The Register streams of the workers, over WorkerRegistry. A stream is answered once, after the identity.
//   UNAUTHENTICATED, PERMISSION_DENIED  keys are asked for, and it has none for workers: a worker sees prompts.
//   INVALID_ARGUMENT     the first message is no identity, or lacks a field.
//   ALREADY_EXISTS       the id is another live worker's.
//   ABORTED              another run of the worker has registered.
class RegistryService : public internal::Registry::CallbackService {
 public:
  // `core` outlives it.
  explicit RegistryService(RouterCore* core)
      : core_(core), registry_(&core->registry), router_id_(core->router_id), incarnation_(core->incarnation) {}

  grpc::ServerBidiReactor<internal::WorkerReport, internal::RouterReply>* Register(
      grpc::CallbackServerContext* context) override;

 private:
  RouterCore* const core_;
  WorkerRegistry* const registry_;
  const std::string router_id_;
  const uint64_t incarnation_;
};

}  // namespace baton

#endif  // BATON_ROUTER_REGISTRY_SERVICE_H_
