// SPDX-License-Identifier: Apache-2.0
#include "router/request_trace.h"

#include <array>
#include <utility>

namespace baton {
namespace {

// As the timeline calls them.
constexpr std::array<const char*, kNumPhases> kPhaseNames = {"phase.queued",           "phase.tokenise",   "phase.landing", "phase.prefill",
                                                             "phase.transfer_exposed", "phase.first_step", "phase.decode"};

// The request's rows in a viewer lie side by side: its phases, then its calls, which overlap.
constexpr uint64_t kRows = 32;
uint64_t RowOf(uint64_t request, int call) {
  return (request & ~(kRows - 1)) | (call == 0 ? 0 : 1 + static_cast<uint64_t>(call - 1) % (kRows - 1));
}

void AddSummary(const RequestFlow::Summary& summary, std::vector<SpanAttribute>* attributes) {
  attributes->insert(attributes->end(), {{"baton.cached_tokens", int64_t{summary.cached_tokens}},
                                         {"baton.prefill_worker", summary.prefill_worker},
                                         {"baton.decode_worker", summary.decode_worker},
                                         {"baton.route", summary.reason},
                                         {"baton.transport", summary.transport},
                                         {"baton.kv_bytes", summary.kv_bytes},
                                         {"baton.attempts", int64_t{summary.attempts}},
                                         {"baton.recoveries", int64_t{summary.recoveries}}});
}

}  // namespace

CallTrace::CallTrace(Tracer* tracer, const TraceContext& request, int number, Call call)
    : tracer_(tracer),
      context_(NewChild(request)),
      parent_(request.span),
      row_(RowOf(request.span, number)),
      call_(std::move(call)),
      begin_(Clock::Real()->Now()) {}

void CallTrace::End(const absl::Status& call) {
  std::vector<SpanAttribute> attributes = {
      {"baton.worker", call_.worker}, {"baton.choice", int64_t{call_.choice}}, {"baton.stream", int64_t{call_.stream}}};
  if (call_.attempt != 0) attributes.emplace_back("baton.attempt", int64_t{call_.attempt});
  tracer_->Record({.context = context_,
                   .parent = parent_,
                   .name = call_.name,
                   .kind = SpanKind::kClient,
                   .begin = begin_,
                   .end = Clock::Real()->Now(),
                   .attributes = std::move(attributes),
                   .status = said_.ok() ? call : said_,
                   .row = row_});
}

RequestTrace::RequestTrace(Tracer* tracer, const std::optional<TraceContext>& client)
    : tracer_(tracer), context_(tracer->Begin(client)), parent_(client ? client->span : 0), on_(tracer->Records(context_)) {}

std::shared_ptr<CallTrace> RequestTrace::BeginCall(CallTrace::Call call) {
  if (!on_) return nullptr;
  return std::make_shared<CallTrace>(tracer_, context_, ++num_calls_, std::move(call));
}

void RequestTrace::Recovery(const std::string& role, int choice, MonotonicTime now) const {
  if (!on_) return;
  tracer_->Record({.context = NewChild(context_),
                   .parent = context_.span,
                   .name = "recovery",
                   .begin = now,
                   .end = now,
                   .attributes = {{"baton.lost", role}, {"baton.choice", int64_t{choice}}},
                   .row = RowOf(context_.span, 0)});
}

void RequestTrace::End(const RequestOutcome& outcome) const {
  if (!on_) return;
  for (const PhaseClock::Interval& interval : outcome.phases->intervals()) {
    tracer_->Record({.context = NewChild(context_),
                     .parent = context_.span,
                     .name = kPhaseNames[static_cast<size_t>(interval.phase)],
                     .begin = interval.begin,
                     .end = interval.end,
                     .row = RowOf(context_.span, 0)});
  }
  Span span{.context = context_,
            .parent = parent_,
            .name = "generate",
            .kind = SpanKind::kServer,
            .begin = outcome.begin,
            .end = outcome.end,
            .attributes = {{"gen_ai.operation.name", std::string(outcome.chat ? "chat" : "text_completion")},
                           {"gen_ai.request.model", outcome.model},
                           {"gen_ai.response.id", outcome.id},
                           {"gen_ai.usage.input_tokens", outcome.num_prompt_tokens},
                           {"gen_ai.usage.output_tokens", outcome.num_completion_tokens}},
            .status = outcome.status,
            .row = RowOf(context_.span, 0)};
  if (!outcome.finish_reason.empty()) span.attributes.emplace_back("gen_ai.response.finish_reasons", outcome.finish_reason);
  if (!outcome.client_id.empty()) span.attributes.emplace_back("baton.client_request_id", outcome.client_id);
  if (outcome.summary != nullptr) AddSummary(*outcome.summary, &span.attributes);
  tracer_->Record(std::move(span));
}

}  // namespace baton
