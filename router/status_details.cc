// SPDX-License-Identifier: Apache-2.0
#include "router/status_details.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr char kRetryAfterUrl[] = "baton/retry-after-ms";
constexpr char kParamUrl[] = "baton/param";
constexpr char kCodeUrl[] = "baton/error-code";

struct ErrorRow {
  absl::StatusCode code;
  int http;
  absl::string_view type;
  absl::string_view name;
};

constexpr ErrorRow kRows[] = {
    {absl::StatusCode::kInvalidArgument, 400, "invalid_request_error", "invalid_argument"},
    {absl::StatusCode::kOutOfRange, 400, "invalid_request_error", "out_of_range"},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error", "invalid_api_key"},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error", "permission_denied"},
    {absl::StatusCode::kNotFound, 404, "invalid_request_error", "not_found"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "overloaded"},
    {absl::StatusCode::kCancelled, 499, "request_cancelled", "cancelled"},
    {absl::StatusCode::kUnimplemented, 501, "server_error", "not_implemented"},
    {absl::StatusCode::kUnavailable, 503, "server_error", "unavailable"},
    {absl::StatusCode::kDeadlineExceeded, 504, "server_error", "timeout"},
};
constexpr ErrorRow kOther = {absl::StatusCode::kInternal, 500, "server_error", "internal_error"};

const ErrorRow& FindRow(absl::StatusCode code) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const ErrorRow& r) { return r.code == code; });
  return row == std::end(kRows) ? kOther : *row;
}

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after) {
  if (!status.ok()) status.SetPayload(kRetryAfterUrl, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(retry_after))));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterUrl);
  int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

absl::Status WithParam(absl::Status status, absl::string_view param) {
  if (!status.ok()) status.SetPayload(kParamUrl, absl::Cord(param));
  return status;
}

std::optional<std::string> Param(const absl::Status& status) {
  const auto payload = status.GetPayload(kParamUrl);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

absl::Status WithErrorCode(absl::Status status, absl::string_view code) {
  if (!status.ok()) status.SetPayload(kCodeUrl, absl::Cord(code));
  return status;
}

absl::Status InvalidField(absl::string_view param, absl::string_view problem) {
  return WithParam(absl::InvalidArgumentError(absl::StrCat(param, " ", problem)), param);
}

int HttpStatus(absl::StatusCode code) { return FindRow(code).http; }
absl::string_view ErrorType(absl::StatusCode code) { return FindRow(code).type; }

std::string ErrorCode(const absl::Status& status) {
  const auto payload = status.GetPayload(kCodeUrl);
  return payload.has_value() ? std::string(*payload) : std::string(FindRow(status.code()).name);
}

}  // namespace baton
