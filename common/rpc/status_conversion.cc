// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status_conversion.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr size_t kMaxMessageBytes = 4096;

std::string Cut(absl::string_view message) { return std::string(message.substr(0, kMaxMessageBytes)); }

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Cut(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

internal::Error ToErrorProto(const absl::Status& status) {
  internal::Error error;
  error.set_code(static_cast<int>(status.code()));
  error.set_message(Cut(status.message()));
  return error;
}

absl::Status FromErrorProto(const internal::Error& error) {
  if (error.code() <= 0 || error.code() > 16) {
    return absl::InternalError(absl::StrCat("peer sent an error with code ", error.code(), ": ", error.message()));
  }
  return absl::Status(static_cast<absl::StatusCode>(error.code()), error.message());
}

}  // namespace baton
