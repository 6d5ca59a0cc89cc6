// SPDX-License-Identifier: Apache-2.0
// The answering half of a connection.
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/http/connection.h"

namespace baton::http_internal {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// How long a client may take to close its side after the last answer.
constexpr absl::Duration kLinger = absl::Seconds(1);
// As above, after a request of which not everything had been read, which meanwhile is read and thrown away: closing with
// unread bytes makes the kernel send a reset, which discards what the client has not read yet of its answer.
constexpr absl::Duration kRefusedLinger = absl::Seconds(5);
// Buffers above this size are given back once they are empty.
constexpr size_t kKeptBufferBytes = 64 << 10;

// A header cannot end its line.
std::string OneLine(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '\r' || c == '\n' || c == '\0') c = ' ';
  }
  return out;
}

bool HasNoBody(int status) { return status == 204 || status == 304; }

}  // namespace

std::string Connection::Head(int status, absl::string_view content_type, const HttpHeaders& headers,
                             absl::string_view framing) {
  std::string head = absl::StrCat(http_1_0_ ? "HTTP/1.0 " : "HTTP/1.1 ", status, " ", HttpReason(status), "\r\n");
  absl::StrAppend(&head, "Date: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()), "\r\n");
  if (!content_type.empty()) absl::StrAppend(&head, "Content-Type: ", OneLine(content_type), "\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&head, OneLine(name), ": ", OneLine(value), "\r\n");
  if (!keep_alive_) {
    head += "Connection: close\r\n";
  } else if (http_1_0_) {
    head += "Connection: keep-alive\r\n";
  }
  absl::StrAppend(&head, framing, "\r\n");
  return head;
}

void Connection::SendLocked(int status, absl::string_view content_type, absl::string_view body, const HttpHeaders& headers) {
  keep_alive_ = keep_alive_ && !core_->draining();
  const std::string framing = HasNoBody(status) ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n");
  response_ = Response::kDone;
  std::string message = Head(status, content_type, headers, framing);
  if (!head_only_ && !HasNoBody(status)) message.append(body.data(), body.size());
  Enqueue(message);
}

void Connection::Enqueue(absl::string_view bytes) {
  queue_.append(bytes.data(), bytes.size());
  buffered_bytes_ += bytes.size();
  if (std::exchange(flush_posted_, true)) return;
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Flush(); });
}

bool Connection::Send(uint64_t serial, int status, absl::string_view content_type, absl::string_view body,
                      const HttpHeaders& headers) {
  MutexLock lock(&mutex_);
  if (closed_ || serial != serial_ || response_ != Response::kPending) return false;
  SendLocked(status, content_type, body, headers);
  return true;
}

bool Connection::StartStream(uint64_t serial, int status, absl::string_view content_type, const HttpHeaders& headers) {
  MutexLock lock(&mutex_);
  if (closed_ || gone_ || serial != serial_ || response_ != Response::kPending) return false;
  response_ = Response::kStreaming;
  chunked_ = !http_1_0_;
  keep_alive_ = keep_alive_ && chunked_ && !core_->draining();
  Enqueue(Head(status, content_type, headers, chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
  return true;
}

bool Connection::Write(uint64_t serial, absl::string_view chunk) {
  MutexLock lock(&mutex_);
  if (closed_ || gone_ || serial != serial_ || response_ != Response::kStreaming) return false;
  if (chunk.empty() || head_only_) return true;
  if (buffered_bytes_ > 0 && buffered_bytes_ + chunk.size() > core_->options().max_buffered_bytes) {
    gone_ = true;
    boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Close(); });
    return false;
  }
  Enqueue(chunked_ ? absl::StrCat(absl::Hex(chunk.size()), "\r\n", chunk, "\r\n") : std::string(chunk));
  return true;
}

bool Connection::Finish(uint64_t serial) {
  MutexLock lock(&mutex_);
  if (closed_ || serial != serial_ || response_ != Response::kStreaming) return false;
  response_ = Response::kDone;
  Enqueue(chunked_ && !head_only_ ? "0\r\n\r\n" : "");
  return !gone_;
}

void Connection::Abandon(uint64_t serial) {
  MutexLock lock(&mutex_);
  if (closed_ || serial != serial_) return;
  if (response_ == Response::kPending) {
    SendLocked(500, "application/json", HttpErrorBody(500, "the request was dropped without an answer"), {});
  } else if (response_ == Response::kStreaming) {
    boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Close(); });
  }
}

void Connection::Abort() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Close(); });
}

// The old callback may own the last reference to a writer, whose end comes back here: it is destroyed without the lock.
void Connection::OnClosed(uint64_t serial, std::function<void()> callback) {
  {
    MutexLock lock(&mutex_);
    if (serial != serial_ || response_ == Response::kNone) return;
    if (!closed_ && !gone_) {
      on_closed_.swap(callback);
      return;
    }
  }
  callback();
}

bool Connection::closed(uint64_t serial) const {
  MutexLock lock(&mutex_);
  return serial == serial_ && response_ != Response::kNone && (closed_ || gone_);
}

size_t Connection::buffered_bytes() const {
  MutexLock lock(&mutex_);
  return buffered_bytes_;
}

void Connection::Flush() {
  bool response_done;
  {
    MutexLock lock(&mutex_);
    flush_posted_ = false;
    if (state_ == State::kClosed || writing_) return;
    sending_.swap(queue_);
    response_done = response_ == Response::kDone;
  }
  if (tls_ != nullptr) Encrypt();
  sent_ = 0;
  if (!sending_.empty()) return WriteSome();
  if (state_ == State::kLingering) return Linger(kRefusedLinger);
  if (state_ == State::kResponding && response_done) OnResponseSent();
}

// What was queued, and what TLS itself has to say.
void Connection::Encrypt() {
  const size_t plain = sending_.size();
  tls_->Send(sending_);
  sending_ = tls_->TakeOutput();
  MutexLock lock(&mutex_);
  buffered_bytes_ = buffered_bytes_ - plain + sending_.size();
}

// The last words of TLS, so that the client can tell an end from a cut. As far as the kernel takes them at once.
void Connection::SayTlsClose() {
  if (tls_ == nullptr || writing_) return;
  tls_->Close();
  error_code ignored;
  socket_.write_some(boost::asio::buffer(tls_->TakeOutput()), ignored);
}

void Connection::WriteSome() {
  writing_ = true;
  if (state_ != State::kReading) SetDeadline(core_->options().write_timeout);
  socket_.async_write_some(boost::asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](const error_code& error, size_t size) { self->OnWritten(error, size); });
}

void Connection::OnWritten(const error_code& error, size_t size) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return Close();
  sent_ += size;
  {
    MutexLock lock(&mutex_);
    buffered_bytes_ -= size;
  }
  if (sent_ < sending_.size()) return WriteSome();
  sending_.clear();
  if (sending_.capacity() > kKeptBufferBytes) sending_.shrink_to_fit();
  if (state_ == State::kResponding) SetDeadline(absl::InfiniteDuration());
  Flush();
}

void Connection::OnResponseSent() {
  std::function<void()> callback;
  bool keep_alive;
  {
    MutexLock lock(&mutex_);
    response_ = Response::kNone;
    keep_alive = keep_alive_ && !core_->draining();
    callback.swap(on_closed_);
  }
  callback = nullptr;
  ReleaseRequest();
  if (!keep_alive || (end_of_input_ && input_.empty())) {
    state_ = State::kLingering;
    return Linger(input_.empty() ? kLinger : kRefusedLinger);
  }
  AwaitRequest();
  ProcessInput();
  if (state_ == State::kReading && end_of_input_) return Close();
  StartRead();
}

void Connection::Linger(absl::Duration timeout) {
  SayTlsClose();
  if (end_of_input_) return Close();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  input_.clear();
  SetDeadline(timeout);
  StartRead();
}

void Connection::ClientGone() {
  std::function<void()> callback;
  {
    MutexLock lock(&mutex_);
    gone_ = true;
    callback.swap(on_closed_);
  }
  if (callback) callback();
}

void Connection::ReleaseRequest() {
  if (std::exchange(request_counted_, false)) core_->ReleaseRequest();
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kReading) SayTlsClose();
  state_ = State::kClosed;
  std::function<void()> callback;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    gone_ = true;
    queue_ = std::string();
    buffered_bytes_ = 0;
    callback.swap(on_closed_);
  }
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  core_->ReleaseBodyBytes(std::exchange(body_bytes_, 0));
  ReleaseRequest();
  core_->Remove(shared_from_this());
  if (callback) callback();
}

}  // namespace baton::http_internal
