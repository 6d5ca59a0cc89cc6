// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <utility>

#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/http/connection.h"
#include "common/http/server_core.h"
#include "common/tls/tls_store.h"

namespace baton {

HttpResponseWriter::HttpResponseWriter(std::shared_ptr<http_internal::Connection> connection, uint64_t serial)
    : connection_(std::move(connection)), serial_(serial) {}

HttpResponseWriter::~HttpResponseWriter() { connection_->Abandon(serial_); }

bool HttpResponseWriter::Send(int status, absl::string_view content_type, absl::string_view body, const HttpHeaders& headers) {
  return connection_->Send(serial_, status, content_type, body, headers);
}

bool HttpResponseWriter::StartStream(int status, absl::string_view content_type, const HttpHeaders& headers) {
  return connection_->StartStream(serial_, status, content_type, headers);
}

bool HttpResponseWriter::Write(absl::string_view chunk) { return connection_->Write(serial_, chunk); }
bool HttpResponseWriter::Finish() { return connection_->Finish(serial_); }

void HttpResponseWriter::OnClosed(std::function<void()> callback) { connection_->OnClosed(serial_, std::move(callback)); }

bool HttpResponseWriter::closed() const { return connection_->closed(serial_); }
size_t HttpResponseWriter::buffered_bytes() const { return connection_->buffered_bytes(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options, HttpHandler handler) {
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.address));
  if (options.tls != nullptr && options.tls->server_context() == nullptr) {
    return absl::InvalidArgumentError("HTTPS needs a certificate");
  }
  auto core = std::make_shared<http_internal::ServerCore>(options, std::move(handler));
  BATON_RETURN_IF_ERROR(core->Listen(address));
  core->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::HttpServer(std::shared_ptr<http_internal::ServerCore> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() { Stop(); }

uint16_t HttpServer::port() const { return core_->endpoint().port(); }

std::string HttpServer::address() const {
  return FormatHostPort(core_->endpoint().address().to_string(), core_->endpoint().port());
}

int HttpServer::num_connections() const { return core_->num_connections(); }
bool HttpServer::Drain(absl::Duration timeout) { return core_->Drain(timeout); }
void HttpServer::Stop() { core_->Stop(); }

}  // namespace baton
