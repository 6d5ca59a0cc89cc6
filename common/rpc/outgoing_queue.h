// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_OUTGOING_QUEUE_H_
#define BATON_COMMON_RPC_OUTGOING_QUEUE_H_

#include <cstddef>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace baton {

struct StreamLimits {
  size_t max_queued_messages = 1024;
  size_t max_queued_bytes = 8 << 20;  // One larger message is accepted when the queue is empty.
  // Of messages that wait several are written as one. Only for protobufs, serialised ones too, that differ in repeated fields alone,
  // or in fields that one of them has: merged, or with their bytes in a row, they say what they said.
  bool merges = false;
};

// What a queued message takes on the wire: a protobuf's size, or that of bytes already serialised.
template <class Message>
size_t MessageBytes(const Message& message) {
  if constexpr (std::is_same_v<Message, grpc::ByteBuffer>) {
    return message.Length();
  } else {
    return message.ByteSizeLong();
  }
}

// A message that waits, and its size.
template <class Message>
struct QueuedMessage {
  Message message;
  size_t bytes;
};

// The bytes of the first `count` in a row.
inline grpc::ByteBuffer Concatenate(const std::deque<QueuedMessage<grpc::ByteBuffer>>& queue, size_t count) {
  std::string bytes;
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < count; ++i) {
    if (!queue[i].message.Dump(&slices).ok()) continue;
    for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// What both directions share: the outgoing queue. Message is the outgoing type.
template <class Message>
class OutgoingQueue {
 public:
  explicit OutgoingQueue(const StreamLimits& limits) : limits_(limits) {}

  // Returns whether it was queued; *start_write is set when the caller must start writing front().
  bool Push(Message&& message, bool force, bool* start_write) {
    MutexLock lock(&mutex_);
    *start_write = false;
    if (closed_) return false;
    const size_t bytes = MessageBytes(message);
    if (!force && !queue_.empty() && (queue_.size() >= limits_.max_queued_messages || bytes_ + bytes > limits_.max_queued_bytes)) {
      return false;
    }
    Append(std::move(message), bytes);
    *start_write = !std::exchange(writing_, true);
    return true;
  }

  // The last message, past the bound: no further pushes. Set *start_write when the caller must write front() and end the stream with it.
  bool PushLast(Message&& message, bool* start_write) {
    MutexLock lock(&mutex_);
    *start_write = false;
    if (closed_) return false;
    const size_t bytes = MessageBytes(message);
    Append(std::move(message), bytes);
    closed_ = closing_ = true;
    *start_write = !std::exchange(writing_, true);
    return true;
  }

  // The message being written: stable until WriteDone.
  const Message* front() {
    MutexLock lock(&mutex_);
    return &queue_.front().message;
  }

  // After a write. The next message to write, or null when there is none, and where the queue stands, once it has been closed by
  // CloseAfterDrain: is it empty, or is that message the last one?
  struct Closing {
    bool drained = false, last = false;
  };
  const Message* WriteDone(bool ok, Closing* closing) {
    const Message* next = nullptr;
    {
      MutexLock lock(&mutex_);
      bytes_ -= queue_.front().bytes;
      queue_.pop_front();
      if (!ok) {
        closed_ = true;
        queue_.clear();
        bytes_ = 0;
      }
      if (queue_.empty()) {
        writing_ = false;
      } else {
        if constexpr (std::is_same_v<Message, grpc::ByteBuffer>) MergeWaiting();
        next = &queue_.front().message;
      }
      *closing = {.drained = queue_.empty() && closing_, .last = queue_.size() == 1 && closing_};
    }
    writable_.NotifyAll();
    return next;
  }

  // No further pushes. True when nothing is queued or being written, so that the caller finishes at once.
  bool CloseAfterDrain() {
    bool drained;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      closing_ = true;
      drained = queue_.empty() && !writing_;
    }
    writable_.NotifyAll();
    return drained;
  }

  // Drops what is not being written.
  void Abandon() {
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      while (queue_.size() > (writing_ ? 1u : 0u)) {
        bytes_ -= queue_.back().bytes;
        queue_.pop_back();
      }
    }
    writable_.NotifyAll();
  }

  // Waits until at most `bytes` are queued, at most `timeout`. False when closed or the time is up.
  bool WaitBelow(size_t bytes, absl::Duration timeout) {
    const MonotonicTime deadline = Clock::Real()->Now() + timeout;
    MutexLock lock(&mutex_);
    while (!closed_ && bytes_ > bytes) {
      const absl::Duration left = deadline - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return false;
      writable_.WaitFor(&mutex_, left);
    }
    return !closed_;
  }

  size_t queued_bytes() {
    MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  // A protobuf joins the one before it, unless that is being written: so that a queue of small ones stays short, and none is copied
  // twice. Bytes are joined when their turn comes.
  void Append(Message&& message, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes_ += bytes;
    if constexpr (!std::is_same_v<Message, grpc::ByteBuffer>) {
      if (limits_.merges && queue_.size() >= 2 && queue_.back().bytes + bytes <= kMaxMergedBytes) {
        queue_.back().message.MergeFrom(message);
        queue_.back().bytes += bytes;
        return;
      }
    }
    queue_.push_back({std::move(message), bytes});
  }

  // Nothing is being written.
  void MergeWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!limits_.merges || queue_.size() < 2) return;
    size_t count = 0, bytes = 0;
    while (count < queue_.size() && bytes + queue_[count].bytes <= kMaxMergedBytes) bytes += queue_[count++].bytes;
    if (count < 2) return;
    queue_[count - 1] = {Concatenate(queue_, count), bytes};
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count - 1));
  }

  static constexpr size_t kMaxMergedBytes = 16 << 10;

  const StreamLimits limits_;
  Mutex mutex_;
  CondVar writable_;
  std::deque<QueuedMessage<Message>> queue_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_OUTGOING_QUEUE_H_
