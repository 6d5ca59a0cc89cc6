// SPDX-License-Identifier: Apache-2.0
#include "router/router_metrics.h"

#include "absl/strings/ascii.h"

namespace baton {
namespace {
constexpr char kRequestsHelp[] = "Requests of clients by state.";

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kQueued: return "queued";
    case Phase::kTokenise: return "tokenise";
    case Phase::kLanding: return "landing";
    case Phase::kPrefill: return "prefill";
    case Phase::kTransferExposed: return "transfer_exposed";
    case Phase::kFirstStep: return "first_step";
    case Phase::kDecode: return "decode";
  }
  return "?";
}

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
      queue_seconds(registry->GetHistogram("baton_queue_seconds",
                                           "From a request's arrival until workers took it, or until it gave up.", LatencyBuckets())),
      prompt_tokens(registry->GetCounter("baton_prompt_tokens_total", "Prompt tokens of finished requests.")),
      cached_tokens(registry->GetCounter("baton_cached_tokens_total", "Prompt tokens that nobody had to compute.")),
      completion_tokens(registry->GetCounter("baton_completion_tokens_total", "Tokens sent to clients.")),
      unknown_fields(registry->GetCounter("baton_unknown_fields_total", "Request fields that were ignored.")),
      registry_(registry) {
  // From the start, also those that nobody hopes for: a series that appears with its first event has no rate for it.
  for (const char* reason : {"stop", "length", "cancelled", "resource_exhausted", "unavailable", "internal", "data_loss",
                             "deadline_exceeded", "unknown", "failed_precondition", "invalid_argument", "not_found"}) {
    FinishedCounter(reason);
  }
  for (const char* kind : {"prefill", "decode"}) RecoveryCounter(kind);
  for (int i = 0; i < kNumPhases; ++i) {
    phases_[i] = registry->GetHistogram("baton_request_phase_seconds", "Where the time of a finished request went; the phases add up to it.",
                                        LatencyBuckets(), {{"phase", PhaseName(static_cast<Phase>(i))}});
  }
}

void RouterMetrics::ObservePhases(const PhaseClock& phases) {
  for (int i = 0; i < kNumPhases; ++i) phases_[i]->Observe(absl::ToDoubleSeconds(phases.spent(static_cast<Phase>(i))));
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

void AddVllmNames(const std::string& model, MetricRegistry* registry) {
  struct Name {
    const char *name, *of, *help;
    MetricLabels select;
    std::vector<std::pair<std::string, std::string>> rename;
  };
  const Name names[] = {
      {"vllm:num_requests_running", "baton_requests", "Requests that workers have.", {{"state", "running"}}, {}},
      {"vllm:num_requests_waiting", "baton_requests", "Requests that wait.", {{"state", "waiting"}}, {}},
      {"vllm:kv_cache_usage_perc", "baton_kv_usage_ratio", "KV cache in use, 0 to 1.", {}, {}},
      {"vllm:gpu_cache_usage_perc", "baton_kv_usage_ratio", "KV cache in use, 0 to 1.", {}, {}},
      {"vllm:time_to_first_token_seconds", "baton_time_to_first_token_seconds", "Time to first token.", {}, {}},
      {"vllm:inter_token_latency_seconds", "baton_inter_token_latency_seconds", "Between two tokens.", {}, {}},
      {"vllm:time_per_output_token_seconds", "baton_inter_token_latency_seconds", "Between two tokens.", {}, {}},
      {"vllm:e2e_request_latency_seconds", "baton_request_seconds", "From arrival to end.", {}, {}},
      {"vllm:request_queue_time_seconds", "baton_queue_seconds", "Time in the queue.", {}, {}},
      {"vllm:request_success_total", "baton_requests_finished_total", "Requests by how they ended.", {}, {{"reason", "finished_reason"}}},
      {"vllm:prompt_tokens_total", "baton_prompt_tokens_total", "Prompt tokens.", {}, {}},
      {"vllm:generation_tokens_total", "baton_completion_tokens_total", "Tokens generated.", {}, {}},
      {"vllm:prefix_cache_queries_total", "baton_prompt_tokens_total", "Prompt tokens looked up.", {}, {}},
      {"vllm:prefix_cache_hits_total", "baton_cached_tokens_total", "Prompt tokens found.", {}, {}},
  };
  for (const Name& name : names) {
    registry->AddAlias({.name = name.name, .of = name.of, .help = name.help, .select = name.select, .rename = name.rename,
                        .add = {{"model_name", model}}});
  }
}

std::string CodeName(absl::StatusCode code) {
  return absl::AsciiStrToLower(absl::StatusCodeToString(code));
}

}  // namespace baton
