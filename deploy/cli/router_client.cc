// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/router_client.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/generation.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/monotonic_deadline.h"
#include "common/rpc/status_conversion.h"
#include "grpcpp/client_context.h"

namespace baton::cli {
namespace {

void Prepare(absl::Duration timeout, const std::string& api_key, grpc::ClientContext* context) {
  if (!api_key.empty()) context->AddMetadata("authorization", "Bearer " + api_key);
  if (timeout > absl::Hours(24 * 365)) return;
  context->set_deadline(MonotonicDeadline(timeout));
}

// What the call ended with, in words that help the person at the terminal.
absl::Status Explain(const grpc::Status& status, const grpc::ClientContext& context, const std::string& address, bool tls) {
  absl::Status result = FromGrpcStatus(status);
  if (result.ok()) return result;
  if (result.code() == absl::StatusCode::kUnavailable && absl::StrContains(result.message(), "failed to connect")) {
    return absl::UnavailableError(absl::StrCat("no router answers at ", address, " (--router)", tls ? " by TLS" : ", or it wants TLS (--tls)", ": ", result.message()));
  }
  const auto& metadata = context.GetServerTrailingMetadata();
  if (const auto found = metadata.find("retry-after-ms"); found != metadata.end()) {
    const absl::string_view ms(found->second.data(), found->second.size());
    result = absl::Status(result.code(), absl::StrCat(result.message(), " (try again in ", ms, " ms)"));
    result.SetPayload("retry-after-ms", absl::Cord(ms));
  }
  return result;
}

}  // namespace

struct RouterClient::State {
  std::unique_ptr<v1::Generation::Stub> stub;
  Mutex mutex;
  grpc::ClientContext* running ABSL_GUARDED_BY(mutex) = nullptr;
};

RouterClient::RouterClient(std::string address, RouterAccess access)
    : address_(std::move(address)), access_(std::move(access)), state_(std::make_unique<State>()) {
  state_->stub = v1::Generation::NewStub(CreateChannel(address_, access_.tls));
}

RouterClient::~RouterClient() = default;

absl::Status RouterClient::Generate(const v1::GenerateRequest& request, absl::Duration timeout,
                                    const std::function<void(const v1::GenerateResponse&)>& on_message) {
  grpc::ClientContext context;
  Prepare(timeout, access_.api_key, &context);
  const auto reader = state_->stub->Generate(&context, request);
  {
    MutexLock lock(&state_->mutex);
    state_->running = &context;
  }
  v1::GenerateResponse response;
  while (reader->Read(&response)) on_message(response);
  {
    MutexLock lock(&state_->mutex);
    state_->running = nullptr;
  }
  return Explain(reader->Finish(), context, address_, access_.tls != nullptr);
}

void RouterClient::Cancel() {
  MutexLock lock(&state_->mutex);
  if (state_->running != nullptr) state_->running->TryCancel();
}

absl::StatusOr<v1::GetClusterResponse> RouterClient::GetCluster(absl::Duration timeout) {
  grpc::ClientContext context;
  Prepare(timeout, access_.api_key, &context);
  v1::GetClusterResponse response;
  const absl::Status status = Explain(state_->stub->GetCluster(&context, v1::GetClusterRequest(), &response), context, address_, access_.tls != nullptr);
  if (!status.ok()) return status;
  return response;
}

absl::Status RouterClient::DrainWorker(const std::string& worker, absl::Duration timeout) {
  grpc::ClientContext context;
  Prepare(timeout, access_.api_key, &context);
  v1::DrainWorkerRequest request;
  request.set_worker(worker);
  v1::DrainWorkerResponse response;
  return Explain(state_->stub->DrainWorker(&context, request, &response), context, address_, access_.tls != nullptr);
}

}  // namespace baton::cli
