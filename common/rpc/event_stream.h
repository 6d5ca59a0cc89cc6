// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_EVENT_STREAM_H_
#define BATON_COMMON_RPC_EVENT_STREAM_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/call.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/outgoing_queue.h"
#include "common/rpc/status_conversion.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"

namespace baton {

// Streams of events over gRPC's callback API: each end a call (call.h) that is a gRPC stream of its own, with a bounded queue of
// what goes out. A slow on_message is back-pressure for that stream alone.
//
// Lifetime: the stream keeps itself alive until on_done has returned; others may hold a shared_ptr for Send.

// What both kinds of a server's end share: sending, and ending once. Stream: has reactor_, which writes and finishes.
template <class Stream, class Response>
class ServerSender {
 protected:
  explicit ServerSender(const StreamLimits& limits) : outgoing_(limits) {}

  bool Push(Response&& message, bool force) {
    bool start = false;
    const bool queued = outgoing_.Push(std::move(message), force, &start);
    if (start) reactor().StartWrite(outgoing_.front());
    return queued;
  }

  void FinishAfterDrain(const absl::Status& status) {
    if (RequestFinish(status) && outgoing_.CloseAfterDrain()) FinishNow();
  }
  // One packet, where nothing waits before it.
  void FinishWithLast(Response&& last, const absl::Status& status) {
    if (!RequestFinish(status)) return;
    bool start = false;
    if (!outgoing_.PushLast(std::move(last), &start)) {  // The peer is gone.
      if (outgoing_.CloseAfterDrain()) FinishNow();
    } else if (start) {
      FinishNow(outgoing_.front());
    }
  }

  void WriteDone(bool ok) {
    typename OutgoingQueue<Response>::Closing closing;
    const Response* next = outgoing_.WriteDone(ok, &closing);
    if (next != nullptr && !closing.last) {
      reactor().StartWrite(next);
    } else if (next != nullptr || closing.drained) {
      FinishNow(next);
    }
  }

  // Nobody reads any more: ended here too, so that OnDone comes whatever the service does.
  void EndUnread(const char* why) {
    outgoing_.Abandon();
    FinishAfterDrain(absl::CancelledError(why));
  }

  OutgoingQueue<Response> outgoing_;

 private:
  auto& reactor() { return static_cast<Stream*>(this)->reactor_; }

  // False: it has been.
  bool RequestFinish(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (std::exchange(finish_requested_, true)) return false;
    final_status_ = status;
    return true;
  }

  // `last`: to be written before; with the status it is one packet. Null: nothing.
  void FinishNow(const Response* last = nullptr) {
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
      finished_ = true;
      status = final_status_;
    }
    if (last == nullptr) return reactor().Finish(ToGrpcStatus(status));
    reactor().StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }

  Mutex mutex_;
  bool finish_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

// The server's end of a bidirectional stream. Use:
//   auto stream = ServerEventStream<Req, Resp>::Create({.on_message = ..., .on_done = ...});
//   return stream->reactor();   // from the service method; no callback runs before
template <class Request, class Response>
class ServerEventStream final : public ServerCall<Request, Response>,
                                private ServerSender<ServerEventStream<Request, Response>, Response> {
 public:
  using Callbacks = typename ServerCall<Request, Response>::Callbacks;

  static std::shared_ptr<ServerEventStream> Create(Callbacks callbacks, const StreamLimits& limits = {}) {
    auto stream = std::shared_ptr<ServerEventStream>(new ServerEventStream(std::move(callbacks), limits));
    stream->self_ = stream;
    return stream;
  }

  // Hands the stream to gRPC and starts reading. Once.
  grpc::ServerBidiReactor<Request, Response>* reactor() {
    reactor_.Begin();
    return &reactor_;
  }

  bool Send(Response&& message) override { return this->Push(std::move(message), /*force=*/false); }
  bool SendLast(Response&& message) override { return this->Push(std::move(message), /*force=*/true); }
  bool WaitBelow(size_t bytes, absl::Duration timeout) { return this->outgoing_.WaitBelow(bytes, timeout); }
  void Finish(const absl::Status& status) override { this->FinishAfterDrain(status); }
  void FinishWith(Response&& last, const absl::Status& status) override { this->FinishWithLast(std::move(last), status); }

  bool cancelled() const {
    MutexLock lock(&mutex_);
    return peer_gone_;
  }

 private:
  friend class ServerSender<ServerEventStream, Response>;

  class Reactor : public grpc::ServerBidiReactor<Request, Response> {
   public:
    explicit Reactor(ServerEventStream* stream) : stream_(stream) {}
    void Begin() { this->StartRead(&request_); }
    void OnReadDone(bool ok) override {
      if (!ok) return stream_->PeerClosed(/*gone=*/false);
      if (stream_->callbacks_.on_message) stream_->callbacks_.on_message(std::move(request_));
      request_.Clear();
      this->StartRead(&request_);
    }
    void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
    void OnCancel() override { stream_->PeerClosed(/*gone=*/true); }
    void OnDone() override { stream_->Done(); }

   private:
    ServerEventStream* const stream_;
    Request request_;
  };

  ServerEventStream(Callbacks callbacks, const StreamLimits& limits)
      : ServerSender<ServerEventStream, Response>(limits), callbacks_(std::move(callbacks)), reactor_(this) {}

  void PeerClosed(bool gone) {
    bool tell;
    {
      MutexLock lock(&mutex_);
      tell = !peer_closed_;
      peer_closed_ = true;
      peer_gone_ = peer_gone_ || gone;
    }
    if (tell && callbacks_.on_peer_closed) callbacks_.on_peer_closed();
    if (gone) this->EndUnread("peer went away");
  }

  void Done() {
    PeerClosed(/*gone=*/false);
    this->outgoing_.CloseAfterDrain();
    if (callbacks_.on_done) callbacks_.on_done();
    auto self = std::move(self_);  // May delete this.
    callbacks_ = {};
  }

  Callbacks callbacks_;
  Reactor reactor_;
  std::shared_ptr<ServerEventStream> self_;
  mutable Mutex mutex_;
  bool peer_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool peer_gone_ ABSL_GUARDED_BY(mutex_) = false;
};

// The client's end of a bidirectional stream. Use:
//   auto stream = ClientEventStream<Req, Resp>::Create(callbacks);
//   stub->async()->Decode(stream->context(), stream->reactor());
//   stream->Start();
template <class Request, class Response>
class ClientEventStream final : public ClientCall<Request, Response> {
 public:
  using Callbacks = typename ClientCall<Request, Response>::Callbacks;

  // `after_message`: runs after each on_message, when the next read has begun, so beside later on_messages and beside itself. Without it
  // a read begins when on_message has returned.
  static std::shared_ptr<ClientEventStream> Create(Callbacks callbacks, const StreamLimits& limits = {},
                                                   std::function<void()> after_message = nullptr) {
    KeepCallbackThreads();  // The stream ends on one of them, and may be its channel's last user.
    auto stream = std::shared_ptr<ClientEventStream>(new ClientEventStream(std::move(callbacks), limits, std::move(after_message)));
    stream->self_ = stream;
    return stream;
  }

  grpc::ClientContext* context() { return &context_; }
  grpc::ClientBidiReactor<Request, Response>* reactor() { return &reactor_; }

  void Start() { reactor_.Begin(); }

  bool Send(Request&& message) override { return Push(std::move(message), /*force=*/false); }
  bool SendLast(Request&& message) override { return Push(std::move(message), /*force=*/true); }
  bool WaitBelow(size_t bytes, absl::Duration timeout) { return outgoing_.WaitBelow(bytes, timeout); }

  void CloseSending() override {
    if (outgoing_.CloseAfterDrain()) WritesDone();
  }

  void Cancel() override {
    context_.TryCancel();
    outgoing_.Abandon();
    CloseSending();
  }

 private:
  class Reactor : public grpc::ClientBidiReactor<Request, Response> {
   public:
    explicit Reactor(ClientEventStream* stream) : stream_(stream) {}
    void Begin() {
      this->AddHold();  // For writes from other threads; removed when sending is closed or the call has failed.
      this->StartRead(&response_);
      this->StartCall();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return stream_->ReadsEnded();
      if (stream_->callbacks_.on_message) stream_->callbacks_.on_message(std::move(response_));
      response_.Clear();
      this->StartRead(&response_);
      if (stream_->after_message_) stream_->after_message_();  // The stream is not done before this has returned.
    }
    void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
    void OnDone(const grpc::Status& status) override { stream_->Done(FromGrpcStatus(status)); }

   private:
    ClientEventStream* const stream_;
    Response response_;
  };

  ClientEventStream(Callbacks callbacks, const StreamLimits& limits, std::function<void()> after_message)
      : callbacks_(std::move(callbacks)), after_message_(std::move(after_message)), outgoing_(limits), reactor_(this) {}

  bool Push(Request&& message, bool force) {
    bool start = false;
    const bool queued = outgoing_.Push(std::move(message), force, &start);
    if (start) reactor_.StartWrite(outgoing_.front());
    return queued;
  }

  void WriteDone(bool ok) {
    typename OutgoingQueue<Request>::Closing closing;
    const Request* next = outgoing_.WriteDone(ok, &closing);
    if (next != nullptr) {
      reactor_.StartWrite(next);
    } else if (closing.drained || !ok) {
      WritesDone();
    }
  }

  // The server has finished the call (or the connection broke): no write can matter any more.
  void ReadsEnded() {
    outgoing_.Abandon();
    CloseSending();
  }

  void WritesDone() {
    {
      MutexLock lock(&mutex_);
      if (writes_done_) return;
      writes_done_ = true;
    }
    reactor_.StartWritesDone();
    reactor_.RemoveHold();
  }

  void Done(absl::Status status) {
    outgoing_.CloseAfterDrain();
    if (callbacks_.on_done) callbacks_.on_done(std::move(status));
    callbacks_ = {};
    after_message_ = nullptr;
    auto self = std::move(self_);  // May delete this.
  }

  Callbacks callbacks_;
  std::function<void()> after_message_;
  OutgoingQueue<Request> outgoing_;
  grpc::ClientContext context_;
  Reactor reactor_;
  std::shared_ptr<ClientEventStream> self_;
  Mutex mutex_;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
};

// The server's end of a server-streaming call (Generate): messages out, one request in. Cancellation is on_peer_closed.
template <class Response>
class ServerWriteStream final : private ServerSender<ServerWriteStream<Response>, Response> {
 public:
  struct Callbacks {
    std::function<void()> on_peer_closed;  // The client cancelled or went away. At most once, before on_done.
    std::function<void()> on_done;
  };

  static std::shared_ptr<ServerWriteStream> Create(Callbacks callbacks, const StreamLimits& limits = {}) {
    auto stream = std::shared_ptr<ServerWriteStream>(new ServerWriteStream(std::move(callbacks), limits));
    stream->self_ = stream;
    return stream;
  }

  grpc::ServerWriteReactor<Response>* reactor() { return &reactor_; }

  // As ServerCall's.
  bool Send(Response&& message) { return this->Push(std::move(message), /*force=*/false); }
  bool SendLast(Response&& message) { return this->Push(std::move(message), /*force=*/true); }
  size_t queued_bytes() { return this->outgoing_.queued_bytes(); }
  void Finish(const absl::Status& status) { this->FinishAfterDrain(status); }
  void FinishWith(Response&& last, const absl::Status& status) { this->FinishWithLast(std::move(last), status); }

 private:
  friend class ServerSender<ServerWriteStream, Response>;

  class Reactor : public grpc::ServerWriteReactor<Response> {
   public:
    explicit Reactor(ServerWriteStream* stream) : stream_(stream) {}
    void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
    void OnCancel() override { stream_->PeerGone(); }
    void OnDone() override { stream_->Done(); }

   private:
    ServerWriteStream* const stream_;
  };

  ServerWriteStream(Callbacks callbacks, const StreamLimits& limits)
      : ServerSender<ServerWriteStream, Response>(limits), callbacks_(std::move(callbacks)), reactor_(this) {}

  void PeerGone() {
    if (callbacks_.on_peer_closed) callbacks_.on_peer_closed();
    this->EndUnread("client went away");
  }
  void Done() {
    this->outgoing_.CloseAfterDrain();
    if (callbacks_.on_done) callbacks_.on_done();
    callbacks_ = {};
    auto self = std::move(self_);
  }

  Callbacks callbacks_;
  Reactor reactor_;
  std::shared_ptr<ServerWriteStream> self_;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_EVENT_STREAM_H_
