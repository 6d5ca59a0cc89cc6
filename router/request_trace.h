// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_REQUEST_TRACE_H_
#define BATON_ROUTER_REQUEST_TRACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/trace/tracer.h"
#include "router/request_outcome.h"

namespace baton {

// One call to a worker, from its opening to its end: a span of kind client below its request's, and the parent of what the
// worker does. Single-threaded.
class CallTrace {
 public:
  struct Call {
    const char* name;  // "call.decode"
    int choice = 0, stream = 0, attempt = 0;
    std::string worker;
  };

  // `number`: of the request's calls, from 1 on.
  CallTrace(Tracer* tracer, const TraceContext& request, int number, Call call);

  const TraceContext& context() const { return context_; }
  // What the worker said; else the call's own status counts.
  void Note(const absl::Status& status) { said_ = status; }
  void End(const absl::Status& call);

 private:
  Tracer* const tracer_;
  const TraceContext context_;
  const uint64_t parent_, row_;
  const Call call_;
  const MonotonicTime begin_;
  absl::Status said_;
};

// The spans of one request: what happened to it and when, never its text. Records nothing, and costs next to nothing, where
// its trace is not sampled. Single-threaded, as its Generation.
class RequestTrace {
 public:
  // `client`: the client's span, if it sent one. `tracer` outlives it.
  RequestTrace(Tracer* tracer, const std::optional<TraceContext>& client);

  bool on() const { return on_; }
  // For a call to a worker; null where nothing is recorded.
  std::shared_ptr<CallTrace> BeginCall(CallTrace::Call call);
  // What a call is made for.
  const TraceContext& ContextOf(const std::shared_ptr<CallTrace>& call) const { return call == nullptr ? context_ : call->context(); }
  // The request goes on elsewhere, because a worker of this role was lost.
  void Recovery(const std::string& role, int choice, MonotonicTime now) const;
  // The request's span "generate", and below it one for each phase that it was in, retries included. Attributes are
  // OpenTelemetry's for generative models (gen_ai.*) and ours (baton.*).
  void End(const RequestOutcome& outcome) const;

  // Empty where nothing is recorded.
  std::string trace_id() const { return on_ ? context_.TraceId() : std::string(); }

 private:
  Tracer* const tracer_;
  const TraceContext context_;  // Its own span; where nothing is recorded what its calls hand on.
  const uint64_t parent_;       // The client's span; 0: none.
  const bool on_;
  int num_calls_ = 0;
};

}  // namespace baton

#endif  // BATON_ROUTER_REQUEST_TRACE_H_
