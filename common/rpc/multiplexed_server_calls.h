// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_MULTIPLEXED_SERVER_CALLS_H_
#define BATON_COMMON_RPC_MULTIPLEXED_SERVER_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "baton/internal/types.pb.h"
#include "common/base/mutex.h"
#include "common/base/strand.h"
#include "common/rpc/event_stream.h"

namespace baton {

// The server's end of a stream that carries any number of calls. Requests and Events are protobufs of repeated `calls`, as DecodeMany's
// in decode.proto. What the calls send while a message is being written goes out as one message: many tokens, one packet.
//
// A call's on_done comes when its end is queued, not written: whoever ends the server has the stream finished first (Finish).
template <class Request, class Response, class Requests, class Events>
class MultiplexedServerCalls final : public std::enable_shared_from_this<MultiplexedServerCalls<Request, Response, Requests, Events>> {
 public:
  using Call = ServerCall<Request, Response>;
  // Takes up a new call, which is answered from its first message on. Reading thread.
  using Accept = std::function<typename Call::Callbacks(const internal::CallOpening&, std::shared_ptr<Call>)>;

  // `on_done`: the stream and all its calls are over. Lives until then.
  static std::shared_ptr<MultiplexedServerCalls> Create(Accept accept, std::function<void()> on_done, StreamLimits limits = {}) {
    auto calls = std::shared_ptr<MultiplexedServerCalls>(new MultiplexedServerCalls(std::move(accept)));
    limits.merges = true;
    calls->stream_ = Stream::Create(
        {
            .on_message = [calls](Requests&& requests) { calls->OnRequests(std::move(requests)); },
            .on_peer_closed = [calls] { calls->OnPeerClosed(); },
            .on_done = std::move(on_done),
        },
        limits);
    return calls;
  }

  // For the service method. Once.
  grpc::ServerBidiReactor<Requests, Events>* reactor() { return stream_->reactor(); }

  // Ends the stream when what is queued has been written. Calls that are still open are over for the client. Any thread.
  void Finish(const absl::Status& status) { stream_->Finish(status); }

 private:
  using Stream = ServerEventStream<Requests, Events>;

  class SharedCall final : public Call, public std::enable_shared_from_this<SharedCall> {
   public:
    SharedCall(std::shared_ptr<MultiplexedServerCalls> calls, uint64_t id) : calls_(std::move(calls)), id_(id) {}
    void SetCallbacks(typename Call::Callbacks callbacks) { callbacks_ = std::move(callbacks); }

    bool Send(Response&& message) override { return Push(std::move(message), /*force=*/false); }
    bool SendLast(Response&& message) override { return Push(std::move(message), /*force=*/true); }
    void Finish(const absl::Status& status) override { End(nullptr, status); }
    void FinishWith(Response&& last, const absl::Status& status) override { End(&last, status); }

    void OnMessage(Request&& message) {
      strand_.Post([self = this->shared_from_this(), message = std::move(message)]() mutable {
        if (!self->over_ && self->callbacks_.on_message) self->callbacks_.on_message(std::move(message));
      });
    }
    void OnPeerClosed(bool gone) {
      strand_.Post([self = this->shared_from_this()] { self->TellPeerClosed(); });
      if (gone) Finish(absl::CancelledError("peer went away"));
    }

   private:
    bool finished() {
      MutexLock lock(&mutex_);
      return finished_;
    }
    bool Push(Response&& message, bool force) { return !finished() && calls_->Send(id_, &message, nullptr, force); }
    void End(Response* last, const absl::Status& status) {
      {
        MutexLock lock(&mutex_);
        if (std::exchange(finished_, true)) return;
      }
      calls_->Forget(id_);
      calls_->Send(id_, last, &status, /*force=*/true);
      strand_.Post([self = this->shared_from_this()] {
        self->TellPeerClosed();
        self->over_ = true;
        if (self->callbacks_.on_done) self->callbacks_.on_done();
        self->callbacks_ = {};
      });
    }
    void TellPeerClosed() {
      if (!std::exchange(peer_closed_, true) && callbacks_.on_peer_closed) callbacks_.on_peer_closed();
    }

    const std::shared_ptr<MultiplexedServerCalls> calls_;
    const uint64_t id_;
    Strand strand_;  // Of the callbacks, and of what follows.
    typename Call::Callbacks callbacks_;
    bool peer_closed_ = false;
    bool over_ = false;
    Mutex mutex_;
    bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  };

  explicit MultiplexedServerCalls(Accept accept) : accept_(std::move(accept)) {}

  // ---- Reading thread.
  void OnRequests(Requests&& requests) {
    for (auto& entry : *requests.mutable_calls()) {
      const std::shared_ptr<SharedCall> call = entry.has_opening() ? Open(entry.call(), entry.opening()) : Find(entry.call());
      if (call == nullptr) continue;  // It ended before the client knew.
      if (entry.has_message()) call->OnMessage(std::move(*entry.mutable_message()));
      if (entry.closing() != internal::CALL_GOES_ON) call->OnPeerClosed(entry.closing() == internal::CALL_CANCELLED);
    }
  }
  // No client reads any more, or it opens no more calls.
  void OnPeerClosed() {
    absl::flat_hash_map<uint64_t, std::shared_ptr<SharedCall>> open;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      open = calls_;
    }
    for (const auto& [id, call] : open) call->OnPeerClosed(/*gone=*/true);
    stream_->Finish(absl::OkStatus());
  }
  std::shared_ptr<SharedCall> Open(uint64_t id, const internal::CallOpening& opening) {
    if (auto open = Find(id)) return open;  // Its service is told of a second beginning.
    auto call = std::make_shared<SharedCall>(this->shared_from_this(), id);
    {
      MutexLock lock(&mutex_);
      if (closed_) return nullptr;  // The client went away meanwhile.
      calls_.emplace(id, call);
    }
    call->SetCallbacks(accept_(opening, call));
    return call;
  }
  std::shared_ptr<SharedCall> Find(uint64_t id) {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(id);
    return it == calls_.end() ? nullptr : it->second;
  }

  // ---- Any thread.
  void Forget(uint64_t id) {
    MutexLock lock(&mutex_);
    calls_.erase(id);
  }
  // `message`, `ended`: null where there is none.
  bool Send(uint64_t id, Response* message, const absl::Status* ended, bool force) {
    Events events;
    auto* const entry = events.add_calls();
    entry->set_call(id);
    if (message != nullptr) *entry->mutable_message() = std::move(*message);
    if (ended != nullptr) *entry->mutable_ended() = ToErrorProto(*ended);
    return force ? stream_->SendLast(std::move(events)) : stream_->Send(std::move(events));
  }

  const Accept accept_;
  std::shared_ptr<Stream> stream_;
  Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<SharedCall>> calls_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // The client is gone, or opens no more.
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_MULTIPLEXED_SERVER_CALLS_H_
