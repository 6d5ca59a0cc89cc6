// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_HTTP_CLIENT_H_
#define BATON_COMMON_HTTP_HTTP_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/http/http_message.h"

namespace baton {

class TlsContext;

struct HttpFetchRequest {
  std::string address;  // HOST:PORT
  std::string method = "GET";
  std::string target = "/";
  HttpHeaders headers;  // Beside Host, Content-Length and Connection.
  std::string body;
  absl::Duration timeout = absl::Seconds(10);  // For everything together.
  std::shared_ptr<const TlsContext> tls;       // HTTPS; null: HTTP.
  size_t max_response_bytes = 64 << 20;
};

struct HttpResponse {
  int status = 0;
  HttpHeaders headers;
  std::string body;
};

// One request over a connection of its own; blocks. For the command line and tests, not for serving. Any status the server
// sends is a success here.
//   INVALID_ARGUMENT   the address is not HOST:PORT.
//   UNAVAILABLE        no connection, no TLS with the one asked for, or it ended before the response did.
//   DEADLINE_EXCEEDED  not done within the timeout.
//   DATA_LOSS          what came is no HTTP, or over max_response_bytes.
absl::StatusOr<HttpResponse> HttpFetch(const HttpFetchRequest& request);
absl::StatusOr<HttpResponse> HttpGet(absl::string_view address, absl::string_view target,
                                     absl::Duration timeout = absl::Seconds(10),
                                     const std::shared_ptr<const TlsContext>& tls = nullptr);

}  // namespace baton

#endif  // BATON_COMMON_HTTP_HTTP_CLIENT_H_
