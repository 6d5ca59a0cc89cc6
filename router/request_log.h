// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_REQUEST_LOG_H_
#define BATON_ROUTER_REQUEST_LOG_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/request_outcome.h"

namespace baton {

// One line per request, with its timeline, at INFO; never its text. What a client got wrong is told by its code alone, as the
// message may quote the request; the cluster's own troubles have theirs.
void LogRequest(const RequestOutcome& outcome);

// The same of a request that could not be read, and so never became one. `id`: the client's, or the one it was given.
void LogRefusedRequest(absl::string_view id, absl::string_view key_name, const absl::Status& status);

}  // namespace baton

#endif  // BATON_ROUTER_REQUEST_LOG_H_
