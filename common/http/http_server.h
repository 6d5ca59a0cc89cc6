// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_HTTP_SERVER_H_
#define BATON_COMMON_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/http/http_message.h"

namespace baton {

namespace http_internal {
class Connection;
class ServerCore;
}  // namespace http_internal

class TlsStore;

// The answer to one request: either Send once, or StartStream, Write any number of times, Finish. Any thread may call, one
// at a time. Nothing blocks. Dropped without Send or Finish, the client gets 500, or sees its stream cut.
class HttpResponseWriter {
 public:
  HttpResponseWriter(std::shared_ptr<http_internal::Connection> connection, uint64_t serial);
  ~HttpResponseWriter();
  HttpResponseWriter(const HttpResponseWriter&) = delete;
  HttpResponseWriter& operator=(const HttpResponseWriter&) = delete;

  // A whole response. Content-Length, Date and Connection are added; `headers` must not repeat them. False when it cannot
  // be delivered any more, or a response was begun before.
  bool Send(int status, absl::string_view content_type, absl::string_view body, const HttpHeaders& headers = {});

  // The head of a response of unknown length (chunked; for HTTP/1.0 ended by the end of the connection).
  bool StartStream(int status, absl::string_view content_type, const HttpHeaders& headers = {});
  // Queues a piece of the stream; each Write is a chunk of its own and leaves at once. False once the client is gone, or
  // when it reads so slowly that `max_buffered_bytes` would be passed: then its connection is cut (OnClosed follows).
  bool Write(absl::string_view chunk);
  // Ends the stream. The connection serves the next request after it.
  bool Finish();

  // `callback` runs once if the client goes away (FIN, RST, write timeout, server stop) before the response has been handed
  // to the kernel; on a server thread, or at once on the caller's if it has happened already. It must not block. Replaces
  // an earlier callback.
  void OnClosed(std::function<void()> callback);
  // Whether the client is gone.
  bool closed() const;
  // Bytes queued and not yet taken by the kernel.
  size_t buffered_bytes() const;

 private:
  const std::shared_ptr<http_internal::Connection> connection_;
  const uint64_t serial_;
};

struct HttpServerOptions {
  std::string address;  // HOST:PORT; port 0 lets the system choose.
  std::shared_ptr<TlsStore> tls;  // HTTPS with this certificate, and clients with one of its CA; null: HTTP.
  int threads = 1;
  std::string thread_name = "http";
  size_t max_header_bytes = 32 << 10;
  size_t max_body_bytes = 64 << 20;
  size_t max_total_body_bytes = size_t{1} << 30;  // Bodies being received, all connections together; over it: 503.
  size_t max_buffered_bytes = 1 << 20;            // Of a stream, per connection. One whole response may be larger.
  int max_connections = 10000;                    // Over it: 503 and close.
  int max_requests = 10000;                       // In the handlers at once; over it: 503.
  absl::Duration idle_timeout = absl::Seconds(75);   // Between requests.
  absl::Duration read_timeout = absl::Seconds(20);   // For a whole header, and between two pieces of a body; then 408.
  absl::Duration write_timeout = absl::Seconds(30);  // Without the client taking a byte of what is queued; then cut.
};

// Runs on a server thread and must not block: it answers at once or hands the writer to whoever will. Requests of one
// connection come one after the other, the next when the answer before is complete.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpResponseWriter> writer)>;

// An asynchronous HTTP/1.1 server: keep-alive, pipelining, chunked bodies, 100-continue, streams by the thousand. Thread-safe.
class HttpServer {
 public:
  // Listens when it returns.
  //   INVALID_ARGUMENT     the address is not HOST:PORT or its host is not known.
  //   FAILED_PRECONDITION  the address cannot be bound (in use, not of this machine, not permitted); named in the message.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, HttpHandler handler);
  // Stops. The handler is not called any more after it.
  ~HttpServer();

  uint16_t port() const;
  // As bound, "127.0.0.1:8000".
  std::string address() const;
  int num_connections() const;

  // Refuses new connections, closes idle ones, answers new requests on the others with 503, and lets running responses
  // finish. True when all were done within `timeout`. Not from a handler.
  bool Drain(absl::Duration timeout);
  // Cuts what is left and ends the threads. May be called twice. Not from a handler.
  void Stop();

 private:
  explicit HttpServer(std::shared_ptr<http_internal::ServerCore> core);
  const std::shared_ptr<http_internal::ServerCore> core_;
};

}  // namespace baton

#endif  // BATON_COMMON_HTTP_HTTP_SERVER_H_
