// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench_kv/kv_bench_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/quantity.h"

namespace baton::bench {
namespace {

constexpr int kBarWidth = 50;

double Gb(double bytes) { return bytes / 1e9; }

int Columns(double value, double most) {
  return most <= 0 ? 0 : std::clamp(static_cast<int>(std::lround(kBarWidth * value / most)), 0, kBarWidth);
}

}  // namespace

std::string KvBenchText(const std::vector<KvBenchPoint>& points) {
  std::string text = absl::StrFormat("%-8s %9s %7s %9s %9s %6s %9s %6s %11s\n", "BY", "SIZE", "BLOCKS", "CEILING", "PAYLOAD",
                                     "SHARE", "CHECKED", "SHARE", "TRANSFER");
  for (const KvBenchPoint& p : points) {
    absl::StrAppendFormat(&text, "%-8s %9s %7s %9.2f %9.2f %5.0f%% %9.2f %5.0f%% %8.0f us\n", TransportName(p.kind),
                          FormatBytes(p.bytes), KvBenchBlocksName(p.blocks), Gb(p.ceiling), Gb(p.payload), 100 * p.payload_share, Gb(p.checked),
                          100 * p.checked_share, p.checked_us);
  }
  absl::StrAppend(&text, "GB/s, medians. CEILING: memcpy between the same blocks (shm, inproc), a copy on the device (cuda_ipc), the bare\n"
                         "stream (tcp, grpc). BLOCKS: other ones every time, in no cache, as where KV is served; or the same ones over and over.\n");
  double most = 0;
  for (const KvBenchPoint& p : points) most = std::max({most, p.ceiling, p.checked});
  absl::StrAppendFormat(&text, "\nGB/s over size, full width %.1f: # with checksums, - up to the ceiling\n", Gb(most));
  for (const KvBenchPoint& p : points) {
    const int filled = Columns(p.checked, most), empty = std::max(0, Columns(p.ceiling, most) - filled);
    absl::StrAppendFormat(&text, "%-8s %9s %5s |%s%s\n", TransportName(p.kind), FormatBytes(p.bytes), KvBenchBlocksName(p.blocks),
                          std::string(static_cast<size_t>(filled), '#'), std::string(static_cast<size_t>(empty), '-'));
  }
  return text;
}

std::string KvBenchJson(const std::vector<KvBenchPoint>& points) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array(), one_block = nlohmann::ordered_json::object();
  for (const KvBenchPoint& p : points) {
    rows.push_back({{"transport", TransportName(p.kind)},
                    {"blocks", KvBenchBlocksName(p.blocks)},
                    {"bytes", p.bytes},
                    {"ceiling_gb_per_s", Gb(p.ceiling)},
                    {"payload_gb_per_s", Gb(p.payload)},
                    {"checked_gb_per_s", Gb(p.checked)},
                    {"payload_share", p.payload_share},
                    {"checked_share", p.checked_share},
                    {"transfer_us", p.checked_us}});
    if (p.bytes == kKvBenchCellBytes && !one_block.contains(TransportName(p.kind))) one_block[TransportName(p.kind)] = p.checked_us;
  }
  const nlohmann::ordered_json report = {{"points", std::move(rows)}, {"one_block_us", std::move(one_block)}};
  return DumpJson(report);
}

}  // namespace baton::bench
