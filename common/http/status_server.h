// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_STATUS_SERVER_H_
#define BATON_COMMON_HTTP_STATUS_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/metrics.h"
#include "common/http/http_server.h"

namespace baton {

struct StatusServerOptions {
  std::string address;                       // HOST:PORT of --status.
  std::shared_ptr<TlsStore> tls;             // HTTPS; null: HTTP.
  const MetricRegistry* metrics = nullptr;   // Outlives the server.
  // OK: ready. Else the message says what is missing. Called on the server's thread for each request; must not block. None:
  // always ready.
  std::function<absl::Status()> ready;
};

// What every process serves for those who watch it:
//   /health   200 {"status":"ok","version":...} while the process lives
//   /ready    200 {"ready":true} or 503 {"ready":false,"reason":...}
//   /metrics  Prometheus text
// On a thread of its own, so that it answers however busy the process is.
class StatusServer {
 public:
  // Errors as HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<StatusServer>> Start(const StatusServerOptions& options);

  uint16_t port() const { return server_->port(); }
  std::string address() const { return server_->address(); }

 private:
  explicit StatusServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}
  std::unique_ptr<HttpServer> server_;
};

}  // namespace baton

#endif  // BATON_COMMON_HTTP_STATUS_SERVER_H_
