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
#include "common/rpc/callback_threads.h"
#include "common/rpc/outgoing_queue.h"
#include "common/rpc/status_conversion.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"

namespace baton {

// Streams of events over gRPC's callback API. One rule set for all services: messages go out in order through a bounded
// queue, a stream finishes exactly once, and after `on_done` no callback runs. Callbacks run on gRPC threads, one at a time
// per kind, with no lock held; they must not block for long (a slow on_message is back-pressure for that stream alone).
//
// Lifetime: the stream keeps itself alive until on_done has returned; others may hold a shared_ptr for Send.

// The server's end of a bidirectional stream. Use:
//   auto stream = ServerEventStream<Req, Resp>::Create({.on_message = ..., .on_done = ...});
//   return stream->reactor();   // from the service method; no callback runs before
template <class Request, class Response>
class ServerEventStream : public std::enable_shared_from_this<ServerEventStream<Request, Response>> {
 public:
  struct Callbacks {
    std::function<void(Request&&)> on_message;
    // The peer will send no more: it half-closed, went away or cancelled. Once, before on_done. The service answers by
    // Finish, now or later.
    std::function<void()> on_peer_closed;
    // The stream is over; release what it owns. Last call.
    std::function<void()> on_done;
  };

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

  // Queues a message. False when the stream is finishing or over, or the queue is full. Any thread.
  bool Send(Response&& message) { return Push(std::move(message), /*force=*/false); }
  // Past the bound: for a stream's last messages.
  bool SendLast(Response&& message) { return Push(std::move(message), /*force=*/true); }
  bool WaitBelow(size_t bytes, absl::Duration timeout) { return outgoing_.WaitBelow(bytes, timeout); }

  // Ends the stream after what is queued has been written. Later calls are ignored. Any thread.
  void Finish(const absl::Status& status) {
    if (RequestFinish(status) && outgoing_.CloseAfterDrain()) FinishNow();
  }
  // The same with a last message, past the bound: one packet, where nothing waits before it.
  void FinishWith(Response&& last, const absl::Status& status) {
    if (!RequestFinish(status)) return;
    bool start = false;
    if (!outgoing_.PushLast(std::move(last), &start)) {  // The peer is gone.
      if (outgoing_.CloseAfterDrain()) FinishNow();
    } else if (start) {
      FinishNow(outgoing_.front());
    }
  }

  bool cancelled() const {
    MutexLock lock(&mutex_);
    return peer_gone_;
  }

 private:
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
      : callbacks_(std::move(callbacks)), outgoing_(limits), reactor_(this) {}

  bool Push(Response&& message, bool force) {
    bool start = false;
    const bool queued = outgoing_.Push(std::move(message), force, &start);
    if (start) reactor_.StartWrite(outgoing_.front());
    return queued;
  }

  void WriteDone(bool ok) {
    typename OutgoingQueue<Response>::Closing closing;
    const Response* next = outgoing_.WriteDone(ok, &closing);
    if (next != nullptr && !closing.last) {
      reactor_.StartWrite(next);
    } else if (next != nullptr || closing.drained) {
      FinishNow(next);
    }
  }

  void PeerClosed(bool gone) {
    bool tell;
    {
      MutexLock lock(&mutex_);
      tell = !peer_closed_;
      peer_closed_ = true;
      peer_gone_ = peer_gone_ || gone;
    }
    if (tell && callbacks_.on_peer_closed) callbacks_.on_peer_closed();
    if (gone) {
      // Nobody reads any more: end it here too, so that OnDone comes whatever the service does.
      outgoing_.Abandon();
      Finish(absl::CancelledError("peer went away"));
    }
  }

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
    if (last == nullptr) return reactor_.Finish(ToGrpcStatus(status));
    reactor_.StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }

  void Done() {
    PeerClosed(/*gone=*/false);
    outgoing_.CloseAfterDrain();
    if (callbacks_.on_done) callbacks_.on_done();
    auto self = std::move(self_);  // May delete this.
    callbacks_ = {};
  }

  Callbacks callbacks_;
  OutgoingQueue<Response> outgoing_;
  Reactor reactor_;
  std::shared_ptr<ServerEventStream> self_;
  mutable Mutex mutex_;
  bool peer_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool peer_gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool finish_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

// The client's end of a bidirectional stream. Use:
//   auto stream = ClientEventStream<Req, Resp>::Create(callbacks);
//   stub->async()->Decode(stream->context(), stream->reactor());
//   stream->Start();
template <class Request, class Response>
class ClientEventStream : public std::enable_shared_from_this<ClientEventStream<Request, Response>> {
 public:
  struct Callbacks {
    std::function<void(Response&&)> on_message;
    // The call is over; the last message was delivered before. Last call.
    std::function<void(absl::Status)> on_done;
  };

  static std::shared_ptr<ClientEventStream> Create(Callbacks callbacks, const StreamLimits& limits = {}) {
    KeepCallbackThreads();  // The stream ends on one of them, and may be its channel's last user.
    auto stream = std::shared_ptr<ClientEventStream>(new ClientEventStream(std::move(callbacks), limits));
    stream->self_ = stream;
    return stream;
  }

  grpc::ClientContext* context() { return &context_; }
  grpc::ClientBidiReactor<Request, Response>* reactor() { return &reactor_; }

  void Start() { reactor_.Begin(); }

  // Queues a message. False when closed, over, or the queue is full. Any thread.
  bool Send(Request&& message) { return Push(std::move(message), /*force=*/false); }
  bool SendLast(Request&& message) { return Push(std::move(message), /*force=*/true); }
  bool WaitBelow(size_t bytes, absl::Duration timeout) { return outgoing_.WaitBelow(bytes, timeout); }

  // Half-closes after what is queued has been written; the server then finishes the call. Any thread.
  void CloseSending() {
    if (outgoing_.CloseAfterDrain()) WritesDone();
  }

  // Ends the call at once, as CANCELLED. Any thread.
  void Cancel() {
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
    }
    void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
    void OnDone(const grpc::Status& status) override { stream_->Done(FromGrpcStatus(status)); }

   private:
    ClientEventStream* const stream_;
    Response response_;
  };

  ClientEventStream(Callbacks callbacks, const StreamLimits& limits)
      : callbacks_(std::move(callbacks)), outgoing_(limits), reactor_(this) {}

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
    auto self = std::move(self_);  // May delete this.
  }

  Callbacks callbacks_;
  OutgoingQueue<Request> outgoing_;
  grpc::ClientContext context_;
  Reactor reactor_;
  std::shared_ptr<ClientEventStream> self_;
  Mutex mutex_;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
};

// The server's end of a server-streaming call (Generate): messages out, one request in. Cancellation is on_peer_closed.
template <class Response>
class ServerWriteStream : public std::enable_shared_from_this<ServerWriteStream<Response>> {
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
  bool Send(Response&& message) { return Push(std::move(message), /*force=*/false); }
  bool SendLast(Response&& message) { return Push(std::move(message), /*force=*/true); }
  size_t queued_bytes() { return outgoing_.queued_bytes(); }

  void Finish(const absl::Status& status) {
    if (RequestFinish(status) && outgoing_.CloseAfterDrain()) FinishNow();
  }
  // The same with a last message, past the bound: one packet, where nothing waits before it.
  void FinishWith(Response&& last, const absl::Status& status) {
    if (!RequestFinish(status)) return;
    bool start = false;
    if (!outgoing_.PushLast(std::move(last), &start)) {  // The peer is gone.
      if (outgoing_.CloseAfterDrain()) FinishNow();
    } else if (start) {
      FinishNow(outgoing_.front());
    }
  }

 private:
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
      : callbacks_(std::move(callbacks)), outgoing_(limits), reactor_(this) {}

  bool Push(Response&& message, bool force) {
    bool start = false;
    const bool queued = outgoing_.Push(std::move(message), force, &start);
    if (start) reactor_.StartWrite(outgoing_.front());
    return queued;
  }
  void WriteDone(bool ok) {
    typename OutgoingQueue<Response>::Closing closing;
    const Response* next = outgoing_.WriteDone(ok, &closing);
    if (next != nullptr && !closing.last) {
      reactor_.StartWrite(next);
    } else if (next != nullptr || closing.drained) {
      FinishNow(next);
    }
  }
  void PeerGone() {
    if (callbacks_.on_peer_closed) callbacks_.on_peer_closed();
    outgoing_.Abandon();
    Finish(absl::CancelledError("client went away"));
  }
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
    if (last == nullptr) return reactor_.Finish(ToGrpcStatus(status));
    reactor_.StartWriteAndFinish(last, grpc::WriteOptions(), ToGrpcStatus(status));
  }
  void Done() {
    outgoing_.CloseAfterDrain();
    if (callbacks_.on_done) callbacks_.on_done();
    callbacks_ = {};
    auto self = std::move(self_);
  }

  Callbacks callbacks_;
  OutgoingQueue<Response> outgoing_;
  Reactor reactor_;
  std::shared_ptr<ServerWriteStream> self_;
  Mutex mutex_;
  bool finish_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_EVENT_STREAM_H_
