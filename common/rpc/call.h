// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_CALL_H_
#define BATON_COMMON_RPC_CALL_H_

#include <functional>

#include "absl/status/status.h"

namespace baton {

// A bidirectional call as its two ends see it, whatever carries it: a gRPC stream of its own (event_stream.h) or a share of one that
// many calls have (multiplexed_calls.h). One rule set for both: messages go out in order, a call finishes exactly once, and after
// `on_done` no callback runs. Callbacks run on gRPC's threads or inside a method below, one at a time per kind, with no lock held;
// they must not block for long.
template <class Request, class Response>
class ServerCall {
 public:
  struct Callbacks {
    std::function<void(Request&&)> on_message;
    // The peer will send no more: it half-closed, went away or cancelled. Once, before on_done. The service answers by
    // Finish, now or later.
    std::function<void()> on_peer_closed;
    // The call is over; release what it owns. Last one.
    std::function<void()> on_done;
  };
  virtual ~ServerCall() = default;

  // Queues a message. False when the call is finishing or over, or the queue is full. Any thread, as is all that follows.
  virtual bool Send(Response&& message) = 0;
  // Past the bound: for a call's last messages.
  virtual bool SendLast(Response&& message) = 0;
  // Ends the call after what is queued has been written. Later ends are ignored.
  virtual void Finish(const absl::Status& status) = 0;
  // The same with a last message, past the bound.
  virtual void FinishWith(Response&& last, const absl::Status& status) = 0;
};

template <class Request, class Response>
class ClientCall {
 public:
  struct Callbacks {
    std::function<void(Response&&)> on_message;
    // The call is over; the last message was delivered before. Last one.
    std::function<void(absl::Status)> on_done;
  };
  virtual ~ClientCall() = default;

  // Queues a message. False when closed, over, or the queue is full. Any thread, as is all that follows.
  virtual bool Send(Request&& message) = 0;
  // Past the bound.
  virtual bool SendLast(Request&& message) = 0;
  // Half-closes after what is queued has been written; the server then finishes the call.
  virtual void CloseSending() = 0;
  // Ends the call at once, as CANCELLED.
  virtual void Cancel() = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_RPC_CALL_H_
