// SPDX-License-Identifier: Apache-2.0
#include "common/worker/performance.h"

#include <utility>

#include "common/engine/phase_meter.h"

namespace baton {
namespace {

double Share(double rate, double peak) { return peak > 0 ? rate / peak : 0; }

internal::PhasePerformance Performance(const PhaseMeter& meter, double share) {
  const PhaseRates rates = RatesOf(meter.recent());
  internal::PhasePerformance message;
  message.set_tokens_per_second(rates.tokens_per_second);
  message.set_share_of_peak(share);
  message.set_ops_per_pass(rates.ops_per_pass);
  message.set_bytes_per_pass(rates.bytes_per_pass);
  message.set_tokens_per_pass(rates.tokens_per_pass);
  message.set_passes(static_cast<uint64_t>(meter.total().passes));
  message.set_query_key_pairs(static_cast<uint64_t>(meter.total().pairs));
  return message;
}

}  // namespace

internal::MachinePeaks PeaksMessage(const MachinePeaks& peaks) {
  internal::MachinePeaks message;
  message.set_int8_ops(peaks.int8_ops);
  message.set_bf16_flops(peaks.bf16_flops);
  message.set_fp32_flops(peaks.fp32_flops);
  message.set_read_bytes(peaks.read_bytes);
  message.set_matmul_ops(peaks.matmul_ops);
  message.set_matmul_format(peaks.matmul_format);
  return message;
}

internal::PhasePerformance PrefillPerformance(const EngineStats& stats, const MachinePeaks& peaks) {
  return Performance(stats.prefill, Share(RatesOf(stats.prefill.recent()).ops_per_second, peaks.matmul_ops));
}

internal::PhasePerformance DecodePerformance(const EngineStats& stats, const MachinePeaks& peaks) {
  return Performance(stats.decode, Share(RatesOf(stats.decode.recent()).bytes_per_second, peaks.read_bytes));
}

std::vector<std::shared_ptr<MetricRegistry::Callback>> ExportPerformance(MetricRegistry* metrics, const MachinePeaks& peaks,
                                                                         std::function<EngineStats()> stats) {
  constexpr char kPeak[] = "Operations per second that this machine can do at most with the worker's threads, by format; measured.";
  metrics->GetGauge("baton_machine_ops_per_second", kPeak, {{"format", "int8"}})->Set(peaks.int8_ops);
  metrics->GetGauge("baton_machine_ops_per_second", kPeak, {{"format", "bf16"}})->Set(peaks.bf16_flops);
  metrics->GetGauge("baton_machine_ops_per_second", kPeak, {{"format", "fp32"}})->Set(peaks.fp32_flops);
  metrics->GetGauge("baton_machine_read_bytes_per_second", "Bytes per second of a streaming read of as many bytes as the weights have.")
      ->Set(peaks.read_bytes);

  std::vector<std::shared_ptr<MetricRegistry::Callback>> callbacks;
  const auto add = [&](MetricKind kind, const char* name, const char* help, MetricLabels labels,
                       std::function<double(const EngineStats&)> read) {
    callbacks.push_back(metrics->AddCallback(kind, name, help, std::move(labels),
                                             [stats, read = std::move(read)] { return read(stats()); }));
  };
  add(MetricKind::kGauge, "baton_prefill_peak_ratio", "Operations of recent prefill passes over the arithmetic peak of their format.",
      {{"format", peaks.matmul_format}},
      [peaks](const EngineStats& s) { return Share(RatesOf(s.prefill.recent()).ops_per_second, peaks.matmul_ops); });
  add(MetricKind::kGauge, "baton_decode_bandwidth_ratio", "Bytes of recent decode steps over the read bandwidth.", {},
      [peaks](const EngineStats& s) { return Share(RatesOf(s.decode.recent()).bytes_per_second, peaks.read_bytes); });
  using Meter = PhaseMeter EngineStats::*;
  for (const auto& [phase, meter] : {std::pair<const char*, Meter>("prefill", &EngineStats::prefill), {"decode", &EngineStats::decode}}) {
    const MetricLabels labels = {{"phase", phase}};
    add(MetricKind::kGauge, "baton_phase_tokens_per_second", "Tokens of recent passes over their own time.", labels,
        [m = meter](const EngineStats& s) { return RatesOf((s.*m).recent()).tokens_per_second; });
    add(MetricKind::kGauge, "baton_step_ops", "Operations of a recent pass, by the formulas of common/model/work.h.", labels,
        [m = meter](const EngineStats& s) { return RatesOf((s.*m).recent()).ops_per_pass; });
    add(MetricKind::kGauge, "baton_step_bytes", "Bytes that a recent pass reads: weights as stored, cached keys and values.", labels,
        [m = meter](const EngineStats& s) { return RatesOf((s.*m).recent()).bytes_per_pass; });
    add(MetricKind::kCounter, "baton_phase_seconds_total", "Time in forward passes and sampling.", labels,
        [m = meter](const EngineStats& s) { return (s.*m).total().seconds; });
    add(MetricKind::kCounter, "baton_ops_total", "Operations of forward passes.", labels,
        [m = meter](const EngineStats& s) { return (s.*m).total().ops; });
    add(MetricKind::kCounter, "baton_read_bytes_total", "Bytes that forward passes read.", labels,
        [m = meter](const EngineStats& s) { return (s.*m).total().bytes; });
    add(MetricKind::kCounter, "baton_query_key_pairs_total",
        "Query-key pairs of causal attention, per head and layer: n (n + 1) / 2 for a prompt of n tokens, n + 1 for the next one.",
        labels, [m = meter](const EngineStats& s) { return (s.*m).total().pairs; });
  }
  return callbacks;
}

}  // namespace baton
