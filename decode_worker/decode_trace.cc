// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/decode_trace.h"

#include <algorithm>

#include "common/worker/transfer_span.h"

namespace baton {

DecodeTrace::DecodeTrace(Tracer* tracer, const std::optional<TraceContext>& caller)
    : tracer_(tracer), caller_(caller.value_or(TraceContext())), on_(tracer->Records(caller_)) {}

void DecodeTrace::Begin(const TransferId& transfer, const std::string& request_id, int num_cached_tokens) {
  if (!on_) return;
  own_ = NewChild(caller_);
  begin_ = Clock::Real()->Now();
  transfer_ = transfer;
  request_id_ = request_id;
  num_cached_tokens_ = num_cached_tokens;
}

void DecodeTrace::Received(int attempt, const char* transport, const LandingStats& stats, const absl::Status& verified) {
  if (!on_) return;
  const MonotonicTime now = Clock::Real()->Now();
  tracer_->Record({.context = NewChild(caller_),
                   .parent = TransferSpan(caller_, transfer_, attempt).span,
                   .name = "kv.receive",
                   .kind = SpanKind::kServer,
                   .begin = std::max(begin_, now - absl::Milliseconds(stats.receive_ms)),
                   .end = now,
                   .attributes = {{"baton.attempt", int64_t{attempt}},
                                  {"baton.transport", std::string(transport)},
                                  {"baton.kv_bytes", stats.payload_bytes}},
                   .status = verified,
                   .row = own_.span ^ 1});
}

void DecodeTrace::Prefilled(MonotonicTime begin, const absl::Status& status) {
  if (on_) Record("decode.prefill", begin, Clock::Real()->Now(), status);
}

void DecodeTrace::Landed(int attempt) {
  if (!on_) return;
  landed_ = Clock::Real()->Now();
  landed_attempt_ = attempt;
}

void DecodeTrace::Token() {
  if (on_ && ++num_tokens_ == 1) first_token_ = Clock::Real()->Now();
}

void DecodeTrace::End(const absl::Status& status) {
  if (!on_ || !own_.valid()) return;
  const MonotonicTime now = Clock::Real()->Now();
  const bool landed = landed_ != absl::ZeroDuration(), stepped = first_token_ != absl::ZeroDuration();
  Record("decode.landing", begin_, landed ? landed_ : now);
  if (landed) Record("decode.first_step", landed_, stepped ? first_token_ : now);
  if (stepped) Record("decode.steps", first_token_, now);
  tracer_->Record({.context = own_,
                   .parent = caller_.span,
                   .name = "decode",
                   .kind = SpanKind::kServer,
                   .begin = begin_,
                   .end = now,
                   .attributes = {{"gen_ai.response.id", request_id_},
                                  {"gen_ai.usage.output_tokens", num_tokens_},
                                  {"baton.cached_tokens", int64_t{num_cached_tokens_}},
                                  {"baton.transfer", transfer_.ToString()},
                                  {"baton.attempt", int64_t{landed_attempt_}}},
                   .status = status,
                   .row = own_.span});
  own_ = {};
}

void DecodeTrace::Record(const char* name, MonotonicTime begin, MonotonicTime end, const absl::Status& status) {
  tracer_->Record({.context = NewChild(own_), .parent = own_.span, .name = name, .begin = begin, .end = end, .status = status, .row = own_.span});
}

}  // namespace baton
