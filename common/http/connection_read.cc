// SPDX-License-Identifier: Apache-2.0
// The reading half of a connection.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/http/connection.h"

namespace baton::http_internal {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// Pipelined bytes held while a response is being made. At this bound reading pauses and only a reset is noticed.
constexpr size_t kMaxPipelinedBytes = 256 << 10;

// Of a stream that the kernel has and has not sent yet, at most.
constexpr int kUnsentBytes = 128 << 10;

}  // namespace

Connection::Connection(std::shared_ptr<ServerCore> core, tcp::socket socket, std::shared_ptr<const TlsContext> tls)
    : core_(std::move(core)), socket_(std::move(socket)), timer_(socket_.get_executor()) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  // What the client cannot take yet waits here, where it is counted, and not in the kernel, which would keep megabytes of it.
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof(kUnsentBytes));
  const tcp::endpoint remote = socket_.remote_endpoint(ignored);
  remote_address_ = FormatHostPort(remote.address().to_string(ignored), remote.port());
  if (tls == nullptr) return;
  tls_ = std::make_unique<TlsSession>(std::move(tls), TlsSession::Role::kServer);
  socket_.non_blocking(true, ignored);  // For SayTlsClose.
}

void Connection::Start() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kReading) return;
    if (self->core_->draining()) return self->Close();
    self->AwaitRequest();
    if (self->tls_ != nullptr) self->SetDeadline(self->core_->options().read_timeout);  // For the handshake.
    self->StartRead();
  });
}

void Connection::StartRefused() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kReading) return;
    if (self->tls_ != nullptr) return self->Close();  // A handshake is dearer than what is to be said.
    self->Refuse(503, "too many connections; try again later");
    self->StartRead();
  });
}

void Connection::Drain() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kReading || !self->input_.empty()) return;
    if (self->reader_ == nullptr || !self->reader_->started()) self->Close();
  });
}

void Connection::StartRead() {
  if (state_ == State::kClosed || read_pending_ || end_of_input_) return;
  read_pending_ = true;
  if (input_.size() >= kMaxPipelinedBytes && state_ == State::kResponding) {
    socket_.async_wait(tcp::socket::wait_error, [self = shared_from_this()](const error_code& error) {
      self->read_pending_ = false;
      if (self->state_ == State::kResponding && !error) self->Close();
    });
    return;
  }
  socket_.async_read_some(boost::asio::buffer(read_buffer_), [self = shared_from_this()](const error_code& error, size_t size) {
    self->OnRead(error, size);
  });
}

void Connection::OnRead(const error_code& error, size_t size) {
  read_pending_ = false;
  if (state_ == State::kClosed) return;
  if (error == boost::asio::error::eof) return OnEndOfInput();
  if (error == boost::asio::error::operation_aborted) return;  // Reading resumes elsewhere.
  if (error) return Close();
  if (state_ != State::kLingering) {
    const absl::string_view bytes(read_buffer_.data(), size);
    if (tls_ == nullptr) {
      input_.append(bytes.data(), bytes.size());
    } else {
      Decrypt(bytes);
    }
    ProcessInput();
    if (tls_ != nullptr && tls_->peer_closed() && state_ != State::kClosed) return OnEndOfInput();
  }
  StartRead();
}

void Connection::Decrypt(absl::string_view bytes) {
  if (!std::exchange(heard_, true) && !TlsSession::LooksLikeTls(bytes)) {
    tls_ = nullptr;
    return Refuse(400, "this address speaks HTTPS: ask for https:// instead of http://");
  }
  const bool established = tls_->established();
  const absl::Status status = tls_->Receive(bytes, &input_);
  if (!status.ok()) return OnTlsFailure(status);
  if (!established && tls_->established()) SetDeadline(core_->options().idle_timeout);
  if (tls_->has_output()) Flush();
}

// The alert that says why is worth more than a reset: a client whose certificate is missing may have sent its request already.
void Connection::OnTlsFailure(const absl::Status& status) {
  if (core_->MayLogTlsFailure()) BATON_LOG(INFO) << "HTTPS client " << remote_address_ << ": " << status.message();
  const bool responding = state_ == State::kResponding;
  if (responding || writing_) return Close();
  state_ = State::kLingering;
  core_->ReleaseBodyBytes(std::exchange(body_bytes_, 0));
  Linger(core_->options().read_timeout);
}

// FIN. It is taken as the client having left, for a client that merely closed its sending half cannot be told from one
// that is gone; what can be answered at once still is.
void Connection::OnEndOfInput() {
  end_of_input_ = true;
  switch (state_) {
    case State::kReading: return Close();
    case State::kResponding: return ClientGone();
    case State::kLingering:
      if (!writing_) Close();
      return;
    case State::kClosed: return;
  }
}

void Connection::AwaitRequest() {
  state_ = State::kReading;
  reader_ = std::make_unique<RequestReader>(core_->options().max_header_bytes, core_->options().max_body_bytes);
  continue_sent_ = false;
  SetDeadline(core_->options().idle_timeout);
}

void Connection::ProcessInput() {
  size_t used = 0;
  while (state_ == State::kReading && used < input_.size()) {
    const bool started = reader_->started();
    const size_t taken = reader_->Consume(absl::string_view(input_).substr(used));
    used += taken;
    // A header has to be complete within the timeout; a body has to go on.
    if ((!started && reader_->started()) || (taken > 0 && reader_->state() == RequestReader::State::kBody)) {
      SetDeadline(core_->options().read_timeout);
    }
    if (!AccountBody()) break;
    if (reader_->state() == RequestReader::State::kError) {
      const RequestReader::Error refusal = reader_->error();
      Refuse(refusal.status, refusal.message, refusal.param);
    } else if (reader_->state() == RequestReader::State::kDone) {
      Dispatch();
    } else if (taken == 0) {
      break;
    } else if (reader_->expects_continue() && !continue_sent_ && used == input_.size()) {
      continue_sent_ = true;
      MutexLock lock(&mutex_);
      Enqueue("HTTP/1.1 100 Continue\r\n\r\n");
    }
  }
  input_.erase(0, used);
  if (input_.empty() && input_.capacity() > kMaxPipelinedBytes) input_.shrink_to_fit();
}

// Holds the bodies being received, over all connections, to their limit.
bool Connection::AccountBody() {
  const size_t held = reader_->body_bytes();
  if (held > body_bytes_) {
    if (!core_->AcquireBodyBytes(held - body_bytes_)) {
      Refuse(503, "too many large requests at once; try again later");
      return false;
    }
    body_bytes_ = held;
  }
  return true;
}

void Connection::Dispatch() {
  HttpRequest request = reader_->TakeRequest();
  request.remote_address = remote_address_;
  core_->ReleaseBodyBytes(std::exchange(body_bytes_, 0));
  state_ = State::kResponding;
  SetDeadline(writing_ ? core_->options().write_timeout : absl::InfiniteDuration());
  uint64_t serial;
  {
    MutexLock lock(&mutex_);
    serial = ++serial_;
    response_ = Response::kPending;
    http_1_0_ = request.http_1_0;
    head_only_ = request.method == "HEAD";
    chunked_ = false;
    keep_alive_ = request.keep_alive && !core_->draining();
    gone_ = end_of_input_;
  }
  auto writer = std::make_shared<HttpResponseWriter>(shared_from_this(), serial);
  request_counted_ = !core_->draining() && core_->AcquireRequest();
  if (!request_counted_) {
    const absl::string_view why = core_->draining() ? "shutting down" : "too many requests at once; try again later";
    writer->Send(503, "application/json", HttpErrorBody(503, why), {{"Retry-After", "1"}});
    return;
  }
  try {
    core_->handler()(std::move(request), writer);
  } catch (const std::exception& exception) {
    BATON_LOG(ERROR) << "HTTP handler threw: " << exception.what();  // The writer's end answers 500.
  }
}

// Answers what never reached a handler and closes: where the next request would begin is not known.
void Connection::Refuse(int status, absl::string_view message, absl::string_view param) {
  core_->ReleaseBodyBytes(std::exchange(body_bytes_, 0));
  state_ = State::kLingering;
  input_.clear();
  SetDeadline(core_->options().write_timeout);
  HttpHeaders headers;
  if (status == 503) headers.emplace_back("Retry-After", "1");
  MutexLock lock(&mutex_);
  keep_alive_ = false;
  head_only_ = false;
  SendLocked(status, "application/json", HttpErrorBody(status, message, param), headers);
}

void Connection::SetDeadline(absl::Duration timeout) {
  deadline_ = timeout == absl::InfiniteDuration() ? timeout : Clock::Real()->Now() + timeout;
  if (deadline_ < timer_at_) ArmTimer();
}

// A deadline that moves away leaves the timer alone; when it fires too early it is set again. So a stream of ten thousand
// writes costs a handful of timers.
void Connection::ArmTimer() {
  timer_at_ = deadline_;
  timer_.expires_after(absl::ToChronoNanoseconds(std::max(absl::ZeroDuration(), deadline_ - Clock::Real()->Now())));
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->state_ == State::kClosed) return;
    self->timer_at_ = absl::InfiniteDuration();
    if (self->deadline_ <= Clock::Real()->Now()) {
      self->OnDeadline();
    } else if (self->deadline_ < absl::InfiniteDuration()) {
      self->ArmTimer();
    }
  });
}

void Connection::OnDeadline() {
  if (state_ == State::kReading && reader_->started()) {
    Refuse(408, "the request did not arrive in time");
  } else {
    Close();  // Idle, not reading its answer, or done with.
  }
}

}  // namespace baton::http_internal
