// SPDX-License-Identifier: Apache-2.0
#include "router/router_metrics.h"

#include "absl/strings/ascii.h"

namespace baton {
namespace {
constexpr char kRequestsHelp[] = "Requests of clients by state.";
}

RouterMetrics::RouterMetrics(MetricRegistry* registry)
    : waiting(registry->GetGauge("baton_requests", kRequestsHelp, {{"state", "waiting"}})),
      running(registry->GetGauge("baton_requests", kRequestsHelp, {{"state", "running"}})),
      time_to_first_token(registry->GetHistogram("baton_time_to_first_token_seconds",
                                                 "From a request's arrival to its first token.", LatencyBuckets())),
      inter_token_latency(registry->GetHistogram("baton_inter_token_latency_seconds",
                                                 "Between two tokens of one choice, at the router.", InterTokenBuckets())),
      request_seconds(
          registry->GetHistogram("baton_request_seconds", "From a request's arrival to its end.", LatencyBuckets())),
      prompt_tokens(registry->GetCounter("baton_prompt_tokens_total", "Prompt tokens of finished requests.")),
      cached_tokens(registry->GetCounter("baton_cached_tokens_total", "Prompt tokens that nobody had to compute.")),
      completion_tokens(registry->GetCounter("baton_completion_tokens_total", "Tokens sent to clients.")),
      unknown_fields(registry->GetCounter("baton_unknown_fields_total", "Request fields that were ignored.")),
      registry_(registry) {
  for (const char* reason : {"stop", "length", "cancelled"}) FinishedCounter(reason);
  for (const char* kind : {"prefill", "decode"}) RecoveryCounter(kind);
}

void RouterMetrics::CountFinished(absl::string_view reason) { FinishedCounter(reason)->Increment(); }
void RouterMetrics::CountRecovery(absl::string_view kind) { RecoveryCounter(kind)->Increment(); }

Counter* RouterMetrics::FinishedCounter(absl::string_view reason) {
  return registry_->GetCounter("baton_requests_finished_total", "Requests by how they ended.",
                               {{"reason", std::string(reason)}});
}

Counter* RouterMetrics::RecoveryCounter(absl::string_view kind) {
  return registry_->GetCounter("baton_recoveries_total", "Requests that went on after a worker was lost, by its role.",
                               {{"kind", std::string(kind)}});
}

std::string CodeName(absl::StatusCode code) {
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

}  // namespace baton
