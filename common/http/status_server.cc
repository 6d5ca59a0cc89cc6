// SPDX-License-Identifier: Apache-2.0
#include "common/http/status_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/build_info.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr char kJson[] = "application/json";

void Answer(const StatusServerOptions& options, const HttpRequest& request, HttpResponseWriter& writer) {
  if (request.method != "GET" && request.method != "HEAD") {
    writer.Send(405, kJson, HttpErrorBody(405, absl::StrCat("method ", request.method, " is not allowed here")), {{"Allow", "GET, HEAD"}});
  } else if (request.path == "/health") {
    writer.Send(200, kJson, DumpJson(nlohmann::ordered_json{{"status", "ok"}, {"version", Version()}}));
  } else if (request.path == "/ready") {
    const absl::Status status = options.ready ? options.ready() : absl::OkStatus();
    if (status.ok()) {
      writer.Send(200, kJson, "{\"ready\":true}");
    } else {
      const nlohmann::ordered_json body = {{"ready", false}, {"reason", std::string(status.message())}};
      writer.Send(503, kJson, DumpJson(body));
    }
  } else if (request.path == "/metrics") {
    writer.Send(200, MetricRegistry::kContentType, options.metrics == nullptr ? "" : options.metrics->RenderPrometheus());
  } else {
    writer.Send(404, kJson, HttpErrorBody(404, absl::StrCat("no page ", request.path, "; there are /health, /ready and /metrics")));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(const StatusServerOptions& options) {
  HttpServerOptions http;
  http.address = options.address;
  http.tls = options.tls;
  http.thread_name = "status";
  http.max_body_bytes = 64 << 10;
  http.max_connections = 256;
  BATON_ASSIGN_OR_RETURN(auto server, HttpServer::Start(http, [options](HttpRequest request, auto writer) {
                           Answer(options, request, *writer);
                         }));
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(server)));
}

}  // namespace baton
