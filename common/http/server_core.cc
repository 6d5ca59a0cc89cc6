// SPDX-License-Identifier: Apache-2.0
#include "common/http/server_core.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/http/connection.h"
#include "common/tls/tls_store.h"

namespace baton::http_internal {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 4096;  // The kernel takes less where it is set so.
// Connections over the limit that are being told so; more are closed without a word.
constexpr int kRefusals = 256;

}  // namespace

ServerCore::ServerCore(const HttpServerOptions& options, HttpHandler handler)
    : options_(options),
      handler_(std::move(handler)),
      io_(std::max(1, options.threads)),
      acceptor_(boost::asio::make_strand(io_)),
      accept_retry_(acceptor_.get_executor()) {}

ServerCore::~ServerCore() = default;

absl::Status ServerCore::Listen(const HostPort& address) {
  const std::string shown = FormatHostPort(address.host, address.port);
  error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(address.host, std::to_string(address.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", shown, ": ", error.message()));
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(kBacklog, error);
  if (!error) endpoint_ = acceptor_.local_endpoint(error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", shown, ": ", error.message()));
  return absl::OkStatus();
}

void ServerCore::Run() {
  work_.emplace(io_.get_executor());
  boost::asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->Accept(); });
  // Threads hold no reference: they are joined by Stop, which HttpServer's destructor calls.
  for (int i = 0; i < std::max(1, options_.threads); ++i) {
    threads_.emplace_back(absl::StrCat(options_.thread_name, "-", i), [this] { io_.run(); });
  }
}

void ServerCore::Accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept(boost::asio::make_strand(io_), [self = shared_from_this()](const error_code& error, tcp::socket socket) {
    if (error == boost::asio::error::operation_aborted || !self->acceptor_.is_open()) return;
    if (!error) {
      self->OnAccepted(std::move(socket));
      return self->Accept();
    }
    // Out of descriptors or memory: the connection stays in the kernel's queue. Trying at once would spin.
    BATON_LOG(WARNING) << "HTTP accept: " << error.message();
    self->accept_retry_.expires_after(std::chrono::milliseconds(50));
    self->accept_retry_.async_wait([self](const error_code& aborted) {
      if (!aborted) self->Accept();
    });
  });
}

void ServerCore::OnAccepted(tcp::socket socket) {
  auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket),
                                                 options_.tls == nullptr ? nullptr : options_.tls->server_context());
  size_t count;
  {
    MutexLock lock(&mutex_);
    if (stopping_ || connections_.size() >= static_cast<size_t>(options_.max_connections) + kRefusals) return;
    connections_.insert(connection);
    count = connections_.size();
  }
  if (count > static_cast<size_t>(options_.max_connections)) {
    connection->StartRefused();
  } else {
    connection->Start();
  }
}

void ServerCore::CloseAcceptor() {
  boost::asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->acceptor_.close(ignored);
    self->accept_retry_.cancel();
  });
}

int ServerCore::num_connections() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(connections_.size());
}

void ServerCore::Remove(const std::shared_ptr<Connection>& connection) {
  {
    MutexLock lock(&mutex_);
    connections_.erase(connection);
  }
  changed_.NotifyAll();
}

bool ServerCore::AcquireRequest() {
  if (requests_.fetch_add(1, std::memory_order_relaxed) < options_.max_requests) return true;
  ReleaseRequest();
  return false;
}

bool ServerCore::AcquireBodyBytes(size_t bytes) {
  if (body_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= options_.max_total_body_bytes) return true;
  ReleaseBodyBytes(bytes);
  return false;
}

bool ServerCore::MayLogTlsFailure() {
  const int64_t now = absl::ToInt64Seconds(Clock::Real()->Now());
  return tls_failure_logged_s_.exchange(now, std::memory_order_relaxed) != now;
}

bool ServerCore::Drain(absl::Duration timeout) {
  draining_.store(true);
  CloseAcceptor();
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(&mutex_);
    connections.assign(connections_.begin(), connections_.end());
  }
  for (const auto& connection : connections) connection->Drain();
  connections.clear();
  MutexLock lock(&mutex_);
  while (!connections_.empty()) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

void ServerCore::Stop() {
  draining_.store(true);
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopping_, true)) return;
    connections.assign(connections_.begin(), connections_.end());
  }
  CloseAcceptor();
  for (const auto& connection : connections) connection->Abort();
  connections.clear();
  // With the sockets closed nothing is left to wait for, and run() returns.
  work_.reset();
  for (Thread& thread : threads_) thread.Join();
}

}  // namespace baton::http_internal
