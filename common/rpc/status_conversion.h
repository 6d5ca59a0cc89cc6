// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_STATUS_CONVERSION_H_
#define BATON_COMMON_RPC_STATUS_CONVERSION_H_

#include "absl/status/status.h"
#include "baton/internal/types.pb.h"
#include "grpcpp/support/status.h"

namespace baton {

// The codes are the same numbers on both sides; messages carry over (cut at 4 KiB: they travel in HTTP/2 headers).
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// A status inside a message. FromProto of code OK or of an unknown code is INTERNAL: an error field is never a success.
internal::Error ToErrorProto(const absl::Status& status);
absl::Status FromErrorProto(const internal::Error& error);

}  // namespace baton

#endif  // BATON_COMMON_RPC_STATUS_CONVERSION_H_
