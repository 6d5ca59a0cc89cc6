// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_HTTP_MESSAGE_H_
#define BATON_COMMON_HTTP_HTTP_MESSAGE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The first header of that name (case does not matter).
std::optional<std::string> FindHeader(const HttpHeaders& headers, absl::string_view name);

// One request as the client sent it. Bytes are not checked to be UTF-8.
struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // "/v1/models?x=1"
  std::string path;    // "/v1/models"; percent escapes are left alone.
  std::string query;   // "x=1"
  HttpHeaders headers;
  std::string body;            // Without chunk framing; trailers are dropped.
  std::string remote_address;  // "127.0.0.1:40001"
  bool http_1_0 = false;
  bool keep_alive = true;  // The client wants the connection to stay.

  std::optional<std::string> Header(absl::string_view name) const { return FindHeader(headers, name); }
};

// "Not Found" for 404; "Unknown" for a number without a name.
const char* HttpReason(int status);

// The short name that error bodies have as `code`: "not_found" for 404; "unknown" for a number without one.
const char* HttpErrorCode(int status);

// {"error":{"message":...,"type":...,"param":...,"code":HttpErrorCode(status)}}, OpenAI's shape: what the server itself
// answers when it refuses a request. 4xx are "invalid_request_error", the rest "server_error". `param` is the part of the
// request that is wrong; empty: null. Valid UTF-8 whatever `message` holds.
std::string HttpErrorBody(int status, absl::string_view message, absl::string_view param = "");

}  // namespace baton

#endif  // BATON_COMMON_HTTP_HTTP_MESSAGE_H_
