// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPERATIONS_SERVICE_H_
#define BATON_ROUTER_OPERATIONS_SERVICE_H_

#include "baton/v1/operations.grpc.pb.h"
#include "router/router_core.h"

namespace baton {

// baton.v1.Operations, over WorkerRegistry.
class OperationsService : public v1::Operations::CallbackService {
 public:
  // `core` outlives it.
  explicit OperationsService(RouterCore* core) : core_(core) {}

  grpc::ServerUnaryReactor* SetWorkerRole(grpc::CallbackServerContext* context, const v1::SetWorkerRoleRequest* request,
                                          v1::SetWorkerRoleResponse* response) override;

 private:
  RouterCore* const core_;
};

}  // namespace baton

#endif  // BATON_ROUTER_OPERATIONS_SERVICE_H_
