// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/operations_client.h"


#include "absl/strings/str_cat.h"
#include "baton/v1/operations.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/monotonic_deadline.h"
#include "common/rpc/status_conversion.h"
#include "grpcpp/client_context.h"

namespace baton::cli {

absl::Status SetWorkerRole(const std::string& address, const RouterAccess& access, const std::string& worker, const std::string& role,
                           absl::Duration timeout) {
  const auto stub = v1::Operations::NewStub(CreateChannel(address, access.tls));
  grpc::ClientContext context;
  if (!access.api_key.empty()) context.AddMetadata("authorization", "Bearer " + access.api_key);
  context.set_deadline(MonotonicDeadline(timeout));
  v1::SetWorkerRoleRequest request;
  request.set_worker(worker);
  request.set_role(role);
  v1::SetWorkerRoleResponse response;
  const absl::Status status = FromGrpcStatus(stub->SetWorkerRole(&context, request, &response));
  if (!absl::IsUnimplemented(status)) return status;
  return absl::FailedPreconditionError(absl::StrCat("the router at ", address, " is of a release that changes no roles"));
}

}  // namespace baton::cli
