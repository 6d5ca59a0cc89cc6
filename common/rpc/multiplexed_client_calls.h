// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_MULTIPLEXED_CLIENT_CALLS_H_
#define BATON_COMMON_RPC_MULTIPLEXED_CLIENT_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "baton/internal/types.pb.h"
#include "common/base/mutex.h"
#include "common/base/strand.h"
#include "common/rpc/event_stream.h"

namespace baton {

// The client's end: any number of calls to one server over one stream (multiplexed_server_calls.h), which is opened with the first call
// and anew after it broke. When it breaks, the calls that it carried are over, as UNAVAILABLE. A slow on_message of one call holds the
// others back; what comes for them meanwhile is read and merged, so that who is behind has less to do. Thread-safe.
template <class Request, class Response, class Requests, class Events>
class MultiplexedClientCalls {
 public:
  using Call = ClientCall<Request, Response>;
  using Stream = ClientEventStream<Requests, Events>;
  // Gives a new stream its method: stub->async()->DecodeMany(stream->context(), stream->reactor()).
  using Bind = std::function<void(Stream*)>;

  // Appends a message to the one before it, which has not been looked at; false when that cannot be.
  using Merge = bool (*)(Response& before, Response& next);

  // `server`: for errors. `merge`: null where messages stay apart.
  MultiplexedClientCalls(std::string server, Bind bind, Merge merge = nullptr, StreamLimits limits = {})
      : server_(std::move(server)), bind_(std::move(bind)), merge_(merge), limits_(limits) {
    limits_.merges = true;
  }
  // Calls that are open go on; the stream ends with the last.
  ~MultiplexedClientCalls() {
    MutexLock lock(&mutex_);
    if (carrier_ != nullptr) carrier_->Close();
  }

  // Callbacks may come from the first message on.
  std::shared_ptr<Call> Open(internal::CallOpening opening, typename Call::Callbacks callbacks) {
    std::shared_ptr<SharedCall> call;
    std::shared_ptr<Carrier> started;
    {
      MutexLock lock(&mutex_);
      if (carrier_ != nullptr) call = carrier_->Add(&opening, &callbacks);
      if (call == nullptr) {  // None yet, or it broke.
        started = carrier_ = Carrier::Create(server_, merge_, limits_);
        bind_(carrier_->stream());
        call = carrier_->Add(&opening, &callbacks);
      }
    }
    if (started != nullptr) started->stream()->Start();
    return call;
  }

  // Messages that have been read and wait until others have been delivered.
  size_t num_waiting() {
    MutexLock lock(&mutex_);
    return carrier_ == nullptr ? 0 : carrier_->num_waiting();
  }

 private:
  class Carrier;

  class SharedCall final : public Call, public std::enable_shared_from_this<SharedCall> {
   public:
    SharedCall(std::shared_ptr<Carrier> carrier, uint64_t id, internal::CallOpening opening, typename Call::Callbacks callbacks)
        : carrier_(std::move(carrier)), id_(id), opening_(std::move(opening)), callbacks_(std::move(callbacks)) {}

    bool Send(Request&& message) override { return Write(&message, internal::CALL_GOES_ON, /*force=*/false); }
    bool SendLast(Request&& message) override { return Write(&message, internal::CALL_GOES_ON, /*force=*/true); }
    void CloseSending() override { Write(nullptr, internal::CALL_CLOSED, /*force=*/true); }
    void Cancel() override {
      Write(nullptr, internal::CALL_CANCELLED, /*force=*/true);
      carrier_->Remove(id_);
      End(absl::CancelledError("cancelled here"));
    }

    // `last`: it comes with the call's end, so that nothing needs to be said to the server any more.
    void OnMessage(Response&& message, bool last) {
      if (last) SetOver();
      strand_.Post([self = this->shared_from_this(), message = std::move(message)]() mutable {
        if (!self->over_ && self->callbacks_.on_message) self->callbacks_.on_message(std::move(message));
      });
    }
    void End(absl::Status status) {
      SetOver();
      strand_.Post([self = this->shared_from_this(), status = std::move(status)]() mutable {
        if (std::exchange(self->over_, true)) return;
        if (self->callbacks_.on_done) self->callbacks_.on_done(std::move(status));
        self->callbacks_ = {};
      });
    }

   private:
    enum class Sending { kOpen, kClosed, kOver };
    void SetOver() {
      MutexLock lock(&mutex_);
      sending_ = Sending::kOver;
    }
    // `message` null: the closing alone.
    bool Write(Request* message, internal::CallClosing closing, bool force) {
      Requests requests;
      auto* const entry = requests.add_calls();
      entry->set_call(id_);
      entry->set_closing(closing);
      if (message != nullptr) *entry->mutable_message() = std::move(*message);
      const bool cancel = closing == internal::CALL_CANCELLED;
      MutexLock lock(&mutex_);  // The opening goes first, whichever threads send.
      if (sending_ == Sending::kOver || (sending_ == Sending::kClosed && !cancel)) return false;
      if (cancel) {
        sending_ = Sending::kOver;
      } else if (closing == internal::CALL_CLOSED) {
        sending_ = Sending::kClosed;
      }
      if (opening_.has_value() && cancel) return true;  // The server has not heard of it.
      if (opening_.has_value()) *entry->mutable_opening() = *std::exchange(opening_, std::nullopt);
      return carrier_->Send(std::move(requests), force);
    }

    const std::shared_ptr<Carrier> carrier_;
    const uint64_t id_;
    Mutex mutex_;
    std::optional<internal::CallOpening> opening_ ABSL_GUARDED_BY(mutex_);  // Until it is sent.
    Sending sending_ ABSL_GUARDED_BY(mutex_) = Sending::kOpen;
    Strand strand_;  // Of the callbacks, and of what follows.
    typename Call::Callbacks callbacks_;
    bool over_ = false;
  };

  // One stream and what it carries, until it is over.
  class Carrier final : public std::enable_shared_from_this<Carrier> {
   public:
    static std::shared_ptr<Carrier> Create(const std::string& server, Merge merge, const StreamLimits& limits) {
      auto carrier = std::shared_ptr<Carrier>(new Carrier(server, merge));
      carrier->stream_ = Stream::Create({.on_message = [carrier](Events&& events) { carrier->Take(std::move(events)); },
                                         .on_done = [carrier](absl::Status status) { carrier->OnDone(status); }},
                                        limits, [carrier] { carrier->Deliver(); });
      return carrier;
    }
    Stream* stream() { return stream_.get(); }

    // Null when the stream is over; nothing is taken then.
    std::shared_ptr<SharedCall> Add(internal::CallOpening* opening, typename Call::Callbacks* callbacks) {
      MutexLock lock(&mutex_);
      if (over_) return nullptr;
      const uint64_t id = ++last_id_;
      auto call = std::make_shared<SharedCall>(this->shared_from_this(), id, std::move(*opening), std::move(*callbacks));
      calls_.emplace(id, call);
      return call;
    }
    std::shared_ptr<SharedCall> Remove(uint64_t id) {
      std::shared_ptr<SharedCall> call;
      bool last;
      {
        MutexLock lock(&mutex_);
        auto removed = calls_.extract(id);
        if (!removed.empty()) call = std::move(removed.mapped());
        last = closing_ && calls_.empty();
      }
      if (last) stream_->Cancel();
      return call;
    }
    bool Send(Requests&& requests, bool force) {
      return force ? stream_->SendLast(std::move(requests)) : stream_->Send(std::move(requests));
    }
    size_t num_waiting() {
      MutexLock lock(&waiting_mutex_);
      return waiting_.size();
    }
    void Close() {
      bool idle;
      {
        MutexLock lock(&mutex_);
        closing_ = true;
        idle = calls_.empty();
      }
      if (idle) stream_->Cancel();
    }

   private:
    using Entry = std::decay_t<decltype(std::declval<Events>().calls(0))>;
    // So many may wait; then reading waits for their delivery, and the server with it.
    static constexpr size_t kMostWaiting = 1 << 16;

    Carrier(std::string server, Merge merge) : server_(std::move(server)), merge_(merge) {}

    // ---- Reading threads, one after the other.
    void Take(Events&& events) {
      MutexLock lock(&waiting_mutex_);
      const bool merges = merge_ != nullptr && delivering_;  // Else it is delivered at once.
      for (Entry& entry : *events.mutable_calls()) {
        if (!merges || !MergeIntoLast(entry)) waiting_.push_back(std::move(entry));
      }
    }
    bool MergeIntoLast(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(waiting_mutex_) {
      const auto [it, first] = last_.try_emplace(entry.call(), waiting_.size());
      if (first) return false;
      Entry& before = waiting_[it->second];
      const bool merged = before.has_message() && entry.has_message() && !before.has_ended() && merge_(*before.mutable_message(), *entry.mutable_message());
      if (!merged) {
        it->second = waiting_.size();
      } else if (entry.has_ended()) {
        *before.mutable_ended() = std::move(*entry.mutable_ended());
      }
      return merged;
    }

    // ---- Reading threads: one of them delivers, the others go on reading.
    void Deliver() {
      {
        MutexLock lock(&waiting_mutex_);
        while (delivering_ && waiting_.size() > kMostWaiting) delivered_.WaitFor(&waiting_mutex_, absl::Seconds(1));
        if (std::exchange(delivering_, true)) return;
      }
      std::vector<Entry> entries;
      while (TakeWaiting(&entries)) {
        for (Entry& entry : entries) Deliver(entry);
      }
    }
    // False: there is nothing, and nobody delivers any more.
    bool TakeWaiting(std::vector<Entry>* entries) {
      entries->clear();
      MutexLock lock(&waiting_mutex_);
      entries->swap(waiting_);
      last_.clear();
      delivering_ = !entries->empty();
      delivered_.NotifyAll();
      return delivering_;
    }
    void Deliver(Entry& entry) {
      const std::shared_ptr<SharedCall> call = entry.has_ended() ? Remove(entry.call()) : Find(entry.call());
      if (call == nullptr) return;  // Cancelled here meanwhile.
      if (entry.has_message()) call->OnMessage(std::move(*entry.mutable_message()), entry.has_ended());
      if (entry.has_ended()) call->End(entry.ended().code() == 0 ? absl::OkStatus() : FromErrorProto(entry.ended()));
    }

    void OnDone(const absl::Status& status) {
      absl::flat_hash_map<uint64_t, std::shared_ptr<SharedCall>> open;
      {
        MutexLock lock(&mutex_);
        over_ = true;
        open.swap(calls_);
      }
      for (const auto& [id, call] : open) {
        call->End(absl::UnavailableError(absl::StrCat("the stream of calls to ", server_, " ended: ", status.ok() ? "it closed" : status.message())));
      }
    }
    std::shared_ptr<SharedCall> Find(uint64_t id) {
      MutexLock lock(&mutex_);
      const auto it = calls_.find(id);
      return it == calls_.end() ? nullptr : it->second;
    }

    const std::string server_;
    const Merge merge_;
    std::shared_ptr<Stream> stream_;
    Mutex waiting_mutex_;
    CondVar delivered_;
    std::vector<Entry> waiting_ ABSL_GUARDED_BY(waiting_mutex_);
    absl::flat_hash_map<uint64_t, size_t> last_ ABSL_GUARDED_BY(waiting_mutex_);  // Of a call in waiting_, that came during a delivery.
    bool delivering_ ABSL_GUARDED_BY(waiting_mutex_) = false;
    Mutex mutex_;
    absl::flat_hash_map<uint64_t, std::shared_ptr<SharedCall>> calls_ ABSL_GUARDED_BY(mutex_);
    uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
    bool over_ ABSL_GUARDED_BY(mutex_) = false;
    bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  };

  const std::string server_;
  const Bind bind_;
  const Merge merge_;
  StreamLimits limits_;
  Mutex mutex_;
  std::shared_ptr<Carrier> carrier_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_MULTIPLEXED_CLIENT_CALLS_H_
