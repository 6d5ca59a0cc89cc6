// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_OUTGOING_QUEUE_H_
#define BATON_COMMON_RPC_OUTGOING_QUEUE_H_

#include <cstddef>
#include <deque>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "grpcpp/support/byte_buffer.h"

namespace baton {

struct StreamLimits {
  size_t max_queued_messages = 1024;
  size_t max_queued_bytes = 8 << 20;  // One larger message is accepted when the queue is empty.
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
    bytes_ += bytes;
    queue_.push_back(std::move(message));
    if (!writing_) {
      writing_ = true;
      *start_write = true;
    }
    return true;
  }

  // The message being written: stable until WriteDone.
  const Message* front() {
    MutexLock lock(&mutex_);
    return &queue_.front();
  }

  // After a write. The next message to write, or null when there is none; *drained is set when the queue has been closed by
  // CloseAfterDrain and is now empty.
  const Message* WriteDone(bool ok, bool* drained) {
    const Message* next = nullptr;
    {
      MutexLock lock(&mutex_);
      bytes_ -= MessageBytes(queue_.front());
      queue_.pop_front();
      if (!ok) {
        closed_ = true;
        queue_.clear();
        bytes_ = 0;
      }
      if (queue_.empty()) {
        writing_ = false;
      } else {
        next = &queue_.front();
      }
      *drained = queue_.empty() && closing_;
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
        bytes_ -= MessageBytes(queue_.back());
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
  const StreamLimits limits_;
  Mutex mutex_;
  CondVar writable_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_OUTGOING_QUEUE_H_
