// SPDX-License-Identifier: Apache-2.0
#include "router/operations_service.h"

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/utf8.h"
#include "common/rpc/status_conversion.h"

namespace baton {
namespace {

absl::Status SetRole(RouterCore* core, const v1::SetWorkerRoleRequest& request, const absl::StatusOr<std::string>& key) {
  if (!key.ok()) return key.status();
  internal::WorkerRole role = internal::ROLE_UNSPECIFIED;
  for (const internal::WorkerRole known : {internal::PREFILL, internal::DECODE}) {
    if (request.role() == RoleName(known)) role = known;
  }
  if (role == internal::ROLE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("role ", ReplaceInvalidUtf8(request.role()), " is none of prefill, decode"));
  }
  absl::Status status = core->registry.SetRole(request.worker(), role);
  if (status.ok()) {
    BATON_LOG(INFO) << "worker " << request.worker() << " is told to be a " << request.role() << " worker" << (key->empty() ? "" : ", key=") << *key;
  }
  return status;
}

}  // namespace

grpc::ServerUnaryReactor* OperationsService::SetWorkerRole(grpc::CallbackServerContext* context, const v1::SetWorkerRoleRequest* request,
                                                           v1::SetWorkerRoleResponse*) {
  const auto found = context->client_metadata().find("authorization");
  const absl::string_view authorization =
      found == context->client_metadata().end() ? absl::string_view() : absl::string_view(found->second.data(), found->second.size());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(SetRole(core_, *request, core_->CheckKey(authorization, KeyRole::kAdmin))));
  return reactor;
}

}  // namespace baton
