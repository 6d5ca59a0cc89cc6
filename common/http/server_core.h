// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_SERVER_CORE_H_
#define BATON_COMMON_HTTP_SERVER_CORE_H_

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/host_port.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/http/http_server.h"

namespace baton::http_internal {

class Connection;

// What the connections of one server share: the event loop, the counters behind the limits, and the list of who is there.
// Outlives every connection, and so every writer that a handler may still hold after the server stopped.
class ServerCore : public std::enable_shared_from_this<ServerCore> {
 public:
  ServerCore(const HttpServerOptions& options, HttpHandler handler);
  ~ServerCore();

  absl::Status Listen(const HostPort& address);
  void Run();
  bool Drain(absl::Duration timeout);
  void Stop();

  const HttpServerOptions& options() const { return options_; }
  const HttpHandler& handler() const { return handler_; }
  boost::asio::ip::tcp::endpoint endpoint() const { return endpoint_; }
  bool draining() const { return draining_.load(std::memory_order_relaxed); }
  int num_connections() const;
  void Remove(const std::shared_ptr<Connection>& connection);

  // Places among max_requests and bytes of max_total_body_bytes. False: none left.
  bool AcquireRequest();
  void ReleaseRequest() { requests_.fetch_sub(1, std::memory_order_relaxed); }
  bool AcquireBodyBytes(size_t bytes);
  void ReleaseBodyBytes(size_t bytes) { body_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // At most once a second: strangers that knock must not fill the log.
  bool MayLogTlsFailure();

 private:
  void Accept();
  void OnAccepted(boost::asio::ip::tcp::socket socket);
  void CloseAcceptor();

  const HttpServerOptions options_;
  const HttpHandler handler_;
  boost::asio::io_context io_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  boost::asio::ip::tcp::acceptor acceptor_;  // On a strand of its own, like the timer.
  boost::asio::steady_timer accept_retry_;
  boost::asio::ip::tcp::endpoint endpoint_;
  std::vector<Thread> threads_;
  std::atomic<bool> draining_{false};
  std::atomic<int> requests_{0};
  std::atomic<size_t> body_bytes_{0};
  std::atomic<int64_t> tls_failure_logged_s_{-1};

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_set<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::http_internal

#endif  // BATON_COMMON_HTTP_SERVER_CORE_H_
