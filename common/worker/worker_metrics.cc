// SPDX-License-Identifier: Apache-2.0
// What a worker shows at /metrics. deploy/METRICS.md says what each series means.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/worker/performance.h"
#include "common/worker/worker_runtime.h"

namespace baton {
namespace {

constexpr char kTransfersHelp[] = "KV transfers that ended, by transport and result.";
constexpr char kCorruptHelp[] = "KV transfers whose contents did not verify; among the failed ones.";
constexpr char kHistoriesHelp[] = "Cached beginnings of prompts that decode workers sent to prefill workers, by transport and result.";
constexpr char kHistoryBytesHelp[] = "KV payload bytes of cached beginnings of prompts that crossed to or from this worker.";
constexpr char kDeniedHelp[] = "Writers that were denied, having not the token of the attempt.";
constexpr char kFallbackHelp[] = "Times that a transport to a peer was found broken, so that the next best is used for a while.";

const char* RoleName(internal::WorkerRole role) { return role == internal::PREFILL ? "prefill" : "decode"; }

}  // namespace

void WorkerRuntime::CountTransfer(const std::string& transport, const std::string& result, int64_t bytes) {
  metrics_.GetCounter("baton_kv_transfers_total", kTransfersHelp, {{"transport", transport}, {"result", result}})->Increment();
  metrics_.GetCounter("baton_kv_transfer_bytes_total", "KV payload bytes that crossed to or from this worker.")
      ->Increment(static_cast<uint64_t>(std::max<int64_t>(bytes, 0)));
}

void WorkerRuntime::CountHistory(const std::string& transport, const std::string& result, int64_t bytes) {
  metrics_.GetCounter("baton_kv_histories_total", kHistoriesHelp, {{"transport", transport}, {"result", result}})->Increment();
  metrics_.GetCounter("baton_kv_history_bytes_total", kHistoryBytesHelp)->Increment(static_cast<uint64_t>(std::max<int64_t>(bytes, 0)));
}

void WorkerRuntime::CountCorruptTransfer(const std::string& transport) {
  metrics_.GetCounter("baton_kv_transfers_corrupt_total", kCorruptHelp, {{"transport", transport}})->Increment();
}

void WorkerRuntime::CountDeniedWriter(const std::string& transport) {
  metrics_.GetCounter("baton_kv_writers_denied_total", kDeniedHelp, {{"transport", transport}})->Increment();
}

void WorkerRuntime::CountTransportFallback(const std::string& transport) {
  metrics_.GetCounter("baton_kv_transport_fallbacks_total", kFallbackHelp, {{"transport", transport}})->Increment();
}

void WorkerRuntime::ObservePrefill(absl::Duration queued, absl::Duration tail) {
  prefill_queue_->Observe(absl::ToDoubleSeconds(queued));
  transfer_tail_->Observe(absl::ToDoubleSeconds(tail));
}

void WorkerRuntime::ExportState() {
  callbacks_.push_back(metrics_.AddCallback(MetricKind::kGauge, "baton_ready", "1 while this process takes work.", {},
                                            [this] { return Ready().ok() ? 1.0 : 0.0; }));
  callbacks_.push_back(metrics_.AddCallback(MetricKind::kGauge, "baton_draining", "1 from SIGTERM to the end.", {},
                                            [this] { return draining() ? 1.0 : 0.0; }));
  if (options_.role == internal::PREFILL) {
    prefill_queue_ = metrics_.GetHistogram("baton_prefill_queue_seconds", "Of a prompt in this worker, before its first pass.",
                                           LatencyBuckets());
    transfer_tail_ = metrics_.GetHistogram("baton_kv_transfer_tail_seconds",
                                           "From the end of a prompt's computation to the end of its KV transfer.", LatencyBuckets());
  }
  if (options_.vllm_metrics) ExportVllmMetrics();
}

void WorkerRuntime::ExportMetrics() {
  const auto add = [this](MetricKind kind, const char* name, const char* help, MetricLabels labels,
                          double (*read)(const EngineStats&)) {
    callbacks_.push_back(metrics_.AddCallback(kind, name, help, std::move(labels),
                                              [engine = engine_.get(), read] { return read(engine->stats()); }));
  };
  constexpr char kBlocks[] = "KV blocks by state; free, used, cached and quarantined add up to the pool.";
  add(MetricKind::kGauge, "baton_kv_blocks", kBlocks, {{"state", "free"}}, [](const EngineStats& s) { return double(s.blocks.free); });
  add(MetricKind::kGauge, "baton_kv_blocks", kBlocks, {{"state", "used"}}, [](const EngineStats& s) { return double(s.blocks.used); });
  add(MetricKind::kGauge, "baton_kv_blocks", kBlocks, {{"state", "cached"}}, [](const EngineStats& s) { return double(s.blocks.cached); });
  add(MetricKind::kGauge, "baton_kv_blocks", kBlocks, {{"state", "quarantined"}},
      [](const EngineStats& s) { return double(s.blocks.quarantined); });
  constexpr char kRequests[] = "Requests in this process by state.";
  add(MetricKind::kGauge, "baton_requests", kRequests, {{"state", "waiting"}},
      [](const EngineStats& s) { return double(s.waiting + s.landing); });
  add(MetricKind::kGauge, "baton_requests", kRequests, {{"state", "running"}}, [](const EngineStats& s) { return double(s.running); });
  add(MetricKind::kCounter, "baton_prompt_tokens_computed_total", "Prompt tokens whose KV was computed here.", {},
      [](const EngineStats& s) { return double(s.prompt_tokens_computed); });
  add(MetricKind::kCounter, "baton_prompt_tokens_cached_total", "Prompt tokens found in the prefix cache here.", {},
      [](const EngineStats& s) { return double(s.prompt_tokens_cached); });
  add(MetricKind::kCounter, "baton_tokens_generated_total", "Tokens generated here.", {},
      [](const EngineStats& s) { return double(s.tokens_generated); });
  add(MetricKind::kCounter, "baton_preemptions_total", "Sequences preempted because KV blocks ran out.", {},
      [](const EngineStats& s) { return double(s.preemptions); });
  add(MetricKind::kCounter, "baton_engine_steps_total", "Forward passes.", {}, [](const EngineStats& s) { return double(s.steps); });
  constexpr char kPasses[] = "Forward passes with rows of a phase.";
  add(MetricKind::kCounter, "baton_phase_passes_total", kPasses, {{"phase", "prefill"}},
      [](const EngineStats& s) { return s.prefill.total().passes; });
  add(MetricKind::kCounter, "baton_phase_passes_total", kPasses, {{"phase", "decode"}},
      [](const EngineStats& s) { return s.decode.total().passes; });
  for (auto& callback : ExportPerformance(&metrics_, peaks_, [engine = engine_.get()] { return engine->stats(); })) {
    callbacks_.push_back(std::move(callback));
  }
  ExportState();
  metrics_.GetGauge("baton_worker_info", "1; the labels say who this is.",
                    {{"id", id()}, {"role", RoleName(options_.role)}, {"model", options_.served_model_name},
                     {"numerics", backend_->numerics_id()}})->Set(1);
  for (const TransportKind kind : options_.transports) {
    const char* const transport = TransportName(kind);
    for (const char* result : {"ok", "failed", "cancelled"}) {
      metrics_.GetCounter("baton_kv_transfers_total", kTransfersHelp, {{"transport", transport}, {"result", result}});
      metrics_.GetCounter("baton_kv_histories_total", kHistoriesHelp, {{"transport", transport}, {"result", result}});
    }
    metrics_.GetCounter("baton_kv_transfers_corrupt_total", kCorruptHelp, {{"transport", transport}});
    metrics_.GetCounter("baton_kv_transport_fallbacks_total", kFallbackHelp, {{"transport", transport}});
    metrics_.GetCounter("baton_kv_writers_denied_total", kDeniedHelp, {{"transport", transport}});
  }
  metrics_.GetCounter("baton_kv_transfer_bytes_total", "KV payload bytes that crossed to or from this worker.");
  metrics_.GetCounter("baton_kv_history_bytes_total", kHistoryBytesHelp);
}

// The names of vLLM's metrics, which its dashboards and the Gateway API inference extension's picker read.
void WorkerRuntime::ExportVllmMetrics() {
  const MetricLabels model = {{"model_name", options_.served_model_name}};
  const auto alias = [&](const char* name, const char* of, const char* help, MetricLabels select = {}) {
    metrics_.AddAlias({.name = name, .of = of, .help = help, .select = std::move(select), .add = model});
  };
  alias("vllm:num_requests_running", "baton_requests", "Requests that are being computed.", {{"state", "running"}});
  alias("vllm:num_requests_waiting", "baton_requests", "Requests that wait.", {{"state", "waiting"}});
  alias("vllm:prompt_tokens_total", "baton_prompt_tokens_computed_total", "Prompt tokens computed.");
  alias("vllm:generation_tokens_total", "baton_tokens_generated_total", "Tokens generated.");
  alias("vllm:num_preemptions_total", "baton_preemptions_total", "Preemptions.");
  alias("vllm:prefix_cache_hits_total", "baton_prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.");
  callbacks_.push_back(metrics_.AddCallback(MetricKind::kCounter, "baton_prompt_tokens_looked_up_total",
                                            "Prompt tokens that the prefix cache was asked for.", {}, [engine = engine_.get()] {
                                              const EngineStats stats = engine->stats();
                                              return double(stats.prompt_tokens_computed + stats.prompt_tokens_cached);
                                            }));
  alias("vllm:prefix_cache_queries_total", "baton_prompt_tokens_looked_up_total", "Prompt tokens looked up.");
  callbacks_.push_back(metrics_.AddCallback(MetricKind::kGauge, "baton_kv_usage_ratio",
                                            "KV blocks in use or quarantined, of all.", {}, [engine = engine_.get()] {
                                              const BlockCounts blocks = engine->stats().blocks;
                                              return blocks.total == 0 ? 0.0 : double(blocks.used + blocks.quarantined) / blocks.total;
                                            }));
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {
    alias(name, "baton_kv_usage_ratio", "KV cache in use, 0 to 1.");
  }
  metrics_.GetGauge("baton_kv_pool_info", "1; the labels say how the KV pool is cut.",
                    {{"block_size", absl::StrCat(pool_->layout().block_size)}, {"num_gpu_blocks", absl::StrCat(pool_->num_blocks())}})->Set(1);
  alias("vllm:cache_config_info", "baton_kv_pool_info", "1; the labels say how the KV pool is cut.");
}

}  // namespace baton
