// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_SCALE_MESSAGE_H_
#define BATON_DEPLOY_CLI_SCALE_MESSAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// What `baton scale` says to `baton serve`, as JSON: how many workers there are to be. Nothing: as many as there are.
struct ScaleRequest {
  std::optional<int> prefill, decode;
};
// The ids that there will be, and those that end.
struct ScaleReply {
  std::vector<std::string> workers, ending;
};

std::string WriteScaleRequest(const ScaleRequest& request);
// INVALID_ARGUMENT  not such a message.
absl::StatusOr<ScaleRequest> ReadScaleRequest(absl::string_view text);

std::string WriteScaleReply(const absl::StatusOr<ScaleReply>& reply);
// The error that was written; INTERNAL for what is no such message.
absl::StatusOr<ScaleReply> ReadScaleReply(absl::string_view text);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_SCALE_MESSAGE_H_
