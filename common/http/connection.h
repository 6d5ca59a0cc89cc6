// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_CONNECTION_H_
#define BATON_COMMON_HTTP_CONNECTION_H_

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/http/http_server.h"
#include "common/http/request_reader.h"
#include "common/http/server_core.h"
#include "common/tls/tls_session.h"

namespace baton::http_internal {

// One client's connection. Two halves:
// * reading, timers and the state run on the connection's strand (the socket's executor), functions marked [strand];
// * answering comes from any thread and only appends to `queue_` under the mutex, then asks the strand to flush.
// A read is pending at all times, also while a response is being made: that is how a client that left is noticed.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Speaks TLS by `tls`; null: in the clear.
  Connection(std::shared_ptr<ServerCore> core, boost::asio::ip::tcp::socket socket, std::shared_ptr<const TlsContext> tls);

  // Begins to serve. Once, from any thread.
  void Start();
  // Answers 503 and closes: the server has enough connections.
  void StartRefused();
  // Closes now if idle; else after the running response.
  void Drain();
  // Closes now.
  void Abort();

  // HttpResponseWriter's functions. `serial` names the request; calls for one that is over return false.
  bool Send(uint64_t serial, int status, absl::string_view content_type, absl::string_view body, const HttpHeaders& headers);
  bool StartStream(uint64_t serial, int status, absl::string_view content_type, const HttpHeaders& headers);
  bool Write(uint64_t serial, absl::string_view chunk);
  bool Finish(uint64_t serial);
  void OnClosed(uint64_t serial, std::function<void()> callback);
  bool closed(uint64_t serial) const;
  size_t buffered_bytes() const;
  // The writer is gone.
  void Abandon(uint64_t serial);

 private:
  enum class State { kReading, kResponding, kLingering, kClosed };
  enum class Response { kNone, kPending, kStreaming, kDone };

  // Reading [strand], connection_read.cc.
  void StartRead();
  void OnRead(const boost::system::error_code& error, size_t size);
  void OnEndOfInput();
  void ProcessInput();
  bool AccountBody();
  void Dispatch();
  void Refuse(int status, absl::string_view message, absl::string_view param = "");
  void AwaitRequest();
  void SetDeadline(absl::Duration timeout);
  void ArmTimer();
  void OnDeadline();
  void Decrypt(absl::string_view bytes);
  void OnTlsFailure(const absl::Status& status);

  // Answering [strand], connection_write.cc.
  void Flush();
  void Encrypt();
  void SayTlsClose();
  void WriteSome();
  void OnWritten(const boost::system::error_code& error, size_t size);
  void OnResponseSent();
  void Linger(absl::Duration timeout);
  void ClientGone();
  void Close();
  void ReleaseRequest();

  std::string Head(int status, absl::string_view content_type, const HttpHeaders& headers, absl::string_view framing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendLocked(int status, absl::string_view content_type, absl::string_view body, const HttpHeaders& headers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<ServerCore> core_;

  // On the strand only.
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  State state_ = State::kReading;
  std::string remote_address_;
  std::array<char, 16384> read_buffer_;
  bool read_pending_ = false;
  bool end_of_input_ = false;  // The client has sent FIN.
  std::string input_;          // Read and not yet consumed: the request being read, then pipelined ones.
  std::unique_ptr<RequestReader> reader_;
  size_t body_bytes_ = 0;  // Accounted with the core.
  bool continue_sent_ = false;
  bool request_counted_ = false;
  MonotonicTime deadline_ = absl::InfiniteDuration();
  MonotonicTime timer_at_ = absl::InfiniteDuration();  // When the timer fires; infinite: not armed.
  std::string sending_;  // What the kernel is being given, from sent_ on: with TLS, encrypted.
  size_t sent_ = 0;
  bool writing_ = false;
  std::unique_ptr<TlsSession> tls_;  // Null: in the clear.
  bool heard_ = false;               // Any byte of the client.

  mutable Mutex mutex_;
  uint64_t serial_ ABSL_GUARDED_BY(mutex_) = 0;
  Response response_ ABSL_GUARDED_BY(mutex_) = Response::kNone;
  bool http_1_0_ ABSL_GUARDED_BY(mutex_) = false;
  bool head_only_ ABSL_GUARDED_BY(mutex_) = false;  // The method is HEAD.
  bool chunked_ ABSL_GUARDED_BY(mutex_) = false;
  bool keep_alive_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;    // The client is; what it asked for need not be made.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // The socket is.
  bool flush_posted_ ABSL_GUARDED_BY(mutex_) = false;
  std::string queue_ ABSL_GUARDED_BY(mutex_);
  size_t buffered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // queue_ and what is left of sending_.
  std::function<void()> on_closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::http_internal

#endif  // BATON_COMMON_HTTP_CONNECTION_H_
