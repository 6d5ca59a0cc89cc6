// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_DECODE_TRACE_H_
#define BATON_DECODE_WORKER_DECODE_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"
#include "common/trace/tracer.h"

namespace baton {

// The spans of one Decode call: "decode", and below it "decode.landing", "decode.prefill" (of its own), "decode.first_step" and
// "decode.steps". KV that came from a prefill worker is "kv.receive", below that worker's "kv.send". Records nothing, and costs
// next to nothing, where the call's trace is not sampled. One thread at a time.
class DecodeTrace {
 public:
  // `caller`: the span that the call is made for. `tracer` outlives it.
  DecodeTrace(Tracer* tracer, const std::optional<TraceContext>& caller);

  void Begin(const TransferId& transfer, const std::string& request_id, int num_cached_tokens);
  // KV of an attempt has arrived.
  void Received(int attempt, const char* transport, const LandingStats& stats, const absl::Status& verified);
  // The prompt's KV was computed here.
  void Prefilled(MonotonicTime begin, const absl::Status& status);
  // Generation begins.
  void Landed(int attempt);
  void Token();
  // What was not begun has no span; the first end counts.
  void End(const absl::Status& status);

 private:
  void Record(const char* name, MonotonicTime begin, MonotonicTime end, const absl::Status& status = absl::OkStatus());

  Tracer* const tracer_;
  const TraceContext caller_;
  const bool on_;
  TraceContext own_;
  TransferId transfer_;
  std::string request_id_;
  int num_cached_tokens_ = 0;
  int landed_attempt_ = 0;
  int64_t num_tokens_ = 0;
  MonotonicTime begin_ = absl::ZeroDuration(), landed_ = absl::ZeroDuration(), first_token_ = absl::ZeroDuration();
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_DECODE_TRACE_H_
