// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/performance_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/cli/terminal.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

Json PhaseJson(const v1::PhasePerformance& phase) {
  return {{"tokens_per_second", phase.tokens_per_second()},
          {"share_of_peak", phase.share_of_peak()},
          {"ops_per_pass", phase.ops_per_pass()},
          {"bytes_per_pass", phase.bytes_per_pass()},
          {"tokens_per_pass", phase.tokens_per_pass()},
          {"passes", phase.passes()},
          {"query_key_pairs", phase.query_key_pairs()}};
}

// Three digits and a prefix: 96.6 M.
std::string Short(double value) {
  const char* const prefixes[] = {"", " k", " M", " G", " T"};
  size_t prefix = 0;
  for (; value >= 999.5 && prefix + 1 < std::size(prefixes); ++prefix) value /= 1000;
  const int decimals = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", decimals, value, prefix == 0 ? " " : prefixes[prefix]);
}

std::string Share(double share, absl::string_view of) {
  return share > 0 ? absl::StrFormat("%.0f%% of %s", 100 * share, of) : "-";
}

std::vector<Cell> Row(const v1::Worker& worker, const char* phase_name, const v1::PhasePerformance& phase, bool decode) {
  const v1::MachinePeaks& peaks = worker.peaks();
  const std::string limit = decode ? absl::StrCat(Short(peaks.read_bytes()), "B/s read")
                                   : absl::StrCat(Short(peaks.matmul_ops()), "op/s ", peaks.matmul_format());
  return {{worker.id(), Tone::kBold},
          {phase_name},
          {absl::StrFormat("%.0f", phase.tokens_per_second())},
          {Share(phase.share_of_peak(), limit)},
          {absl::StrFormat("%.1f", phase.tokens_per_pass())},
          {absl::StrCat(Short(phase.bytes_per_pass()), "B")},
          {absl::StrCat(Short(phase.ops_per_pass()), "op")},
          {absl::StrCat(phase.query_key_pairs())}};
}

}  // namespace

void AddPerformanceJson(const v1::Worker& worker, Json* json) {
  if (worker.has_peaks()) {
    const v1::MachinePeaks& peaks = worker.peaks();
    (*json)["peaks"] = {{"int8_ops", peaks.int8_ops()},     {"bf16_flops", peaks.bf16_flops()},
                        {"fp32_flops", peaks.fp32_flops()}, {"read_bytes", peaks.read_bytes()},
                        {"matmul_ops", peaks.matmul_ops()}, {"matmul_format", peaks.matmul_format()}};
  }
  if (worker.has_prefill()) (*json)["prefill"] = PhaseJson(worker.prefill());
  if (worker.has_decode()) (*json)["decode"] = PhaseJson(worker.decode());
}

std::string PerformanceText(const v1::GetClusterResponse& cluster, bool color, int columns) {
  std::vector<std::vector<Cell>> rows(1);
  for (const char* title : {"WORKER", "PHASE", "TOKENS/S", "OF ITS MACHINE", "TOKENS/PASS", "READ/PASS", "WORK/PASS", "QK PAIRS"}) {
    rows[0].push_back({title, Tone::kDim});
  }
  for (const v1::Worker& worker : cluster.workers()) {
    if (worker.prefill().passes() > 0) rows.push_back(Row(worker, "prefill", worker.prefill(), false));
    if (worker.decode().passes() > 0) rows.push_back(Row(worker, "decode", worker.decode(), true));
  }
  return rows.size() > 1 ? Table(rows, color, columns) : "";
}

}  // namespace baton::cli
