// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_STATUS_DETAILS_H_
#define BATON_ROUTER_STATUS_DETAILS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

// What a status says to a client besides code and message. Travels as payloads; OK carries none.

// When to try again, in whole milliseconds.
absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after);
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

// The request's field that is wrong, as the HTTP API spells it: "messages[1].role".
absl::Status WithParam(absl::Status status, absl::string_view param);
std::optional<std::string> Param(const absl::Status& status);

// What `error.code` says instead of ErrorCode(code): "model_not_found".
absl::Status WithErrorCode(absl::Status status, absl::string_view code);

// INVALID_ARGUMENT about one field: the message begins with the field's name.
absl::Status InvalidField(absl::string_view param, absl::string_view problem);

// The one table from codes to HTTP; its rows are documented in README.md.
int HttpStatus(absl::StatusCode code);
// OpenAI's `error.type` and `error.code`.
absl::string_view ErrorType(absl::StatusCode code);
std::string ErrorCode(const absl::Status& status);

}  // namespace baton

#endif  // BATON_ROUTER_STATUS_DETAILS_H_
