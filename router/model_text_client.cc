// SPDX-License-Identifier: Apache-2.0
#include "router/model_text_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "baton/internal/text.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/monotonic_deadline.h"
#include "common/rpc/status_conversion.h"
#include "grpcpp/client_context.h"

namespace baton {

absl::StatusOr<std::vector<TextFile>> ModelTextClient::Read(const std::string& address, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(MonotonicDeadline(timeout));
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("the router ends");
    context_ = &context;
  }
  const auto channel = CreateChannel(address, tls_);
  const auto stub = internal::ModelText::NewStub(channel);
  const auto reader = stub->Read(&context, {});
  std::vector<TextFile> files;
  size_t bytes = 0;
  for (internal::TextPart part; reader->Read(&part);) {
    bytes += part.data().size();
    if (bytes > kMaxBytes) {
      context.TryCancel();
      continue;
    }
    if (files.empty() || files.back().name != part.file()) files.push_back({part.file(), ""});
    files.back().bytes += part.data();
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  MutexLock lock(&mutex_);
  context_ = nullptr;
  if (bytes > kMaxBytes) return absl::ResourceExhaustedError(absl::StrCat("the text has over ", kMaxBytes, " bytes"));
  if (!status.ok()) return status;
  return files;
}

void ModelTextClient::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

}  // namespace baton
