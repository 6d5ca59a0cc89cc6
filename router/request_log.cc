// SPDX-License-Identifier: Apache-2.0
#include "router/request_log.h"

#include "common/base/log_record.h"
#include "common/base/logging.h"
#include "router/router_metrics.h"
#include "router/status_details.h"

namespace baton {
namespace {

constexpr size_t kMaxClientIdBytes = 64;

bool IsClients(const absl::Status& status) { return absl::IsInvalidArgument(status) || absl::IsNotFound(status); }

void AddTimeline(const PhaseClock& phases, LogRecord* record) {
  const auto add = [&](absl::string_view name, Phase phase) { record->AddMs(name, ToMs(phases.spent(phase))); };
  add("queued_ms", Phase::kQueued);
  add("tokenise_ms", Phase::kTokenise);
  add("landing_ms", Phase::kLanding);
  add("prefill_ms", Phase::kPrefill);
  add("transfer_exposed_ms", Phase::kTransferExposed);
  add("first_step_ms", Phase::kFirstStep);
  add("decode_ms", Phase::kDecode);
  record->AddMs("total_ms", ToMs(phases.total()));
}

}  // namespace

void LogRequest(const RequestOutcome& outcome) {
  if (!LogEnabled(LogSeverity::kINFO)) return;
  LogRecord record("request", outcome.id);
  if (!outcome.key_name.empty()) record.Add("key", outcome.key_name);
  if (!outcome.client_id.empty()) record.Add("client_id", outcome.client_id.substr(0, kMaxClientIdBytes));
  if (!outcome.trace_id.empty()) record.Add("trace", outcome.trace_id);
  record.Add("reason", outcome.status.ok() ? outcome.finish_reason : CodeName(outcome.status.code()));
  record.Add("status", outcome.status.ok() ? 200 : HttpStatus(outcome.status.code()));
  if (outcome.phases != nullptr) {
    record.Add("prompt_tokens", outcome.num_prompt_tokens).Add("completion_tokens", outcome.num_completion_tokens);
    AddTimeline(*outcome.phases, &record);
  }
  if (const RequestFlow::Summary* summary = outcome.summary; summary != nullptr) {
    record.Add("cached_tokens", summary->cached_tokens).Add("prefill", summary->prefill_worker).Add("decode", summary->decode_worker);
    record.Add("route", summary->reason).Add("transport", summary->transport).Add("kv_bytes", summary->kv_bytes);
    record.Add("attempts", summary->attempts).Add("recoveries", summary->recoveries);
    record.Add("history_tokens", summary->history_tokens);
  }
  if (!outcome.status.ok() && !IsClients(outcome.status)) record.Add("error", outcome.status.message());
  record.Write(__FILE__, __LINE__);
}

void LogRefusedRequest(absl::string_view id, absl::string_view key_name, const absl::Status& status) {
  RequestOutcome outcome{.id = std::string(id), .key_name = std::string(key_name), .status = status};
  LogRequest(outcome);
}

}  // namespace baton
