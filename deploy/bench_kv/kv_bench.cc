// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench_kv/kv_bench.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/quantity.h"
#include "common/base/status_macros.h"
#include "deploy/bench_kv/kv_bench_rig.h"

namespace baton::bench {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Small transfers take microseconds: many of them make a figure.
int RoundsFor(int rounds, int64_t bytes) {
  if (bytes <= int64_t{1} << 20) return rounds * 10;
  if (bytes >= int64_t{64} << 20) return std::max(3, rounds / 2);
  return rounds;
}

absl::StatusOr<KvBenchPoint> Measure(KvBenchRig& rig, TransportKind kind, KvBenchBlocks blocks, int64_t bytes, int rounds) {
  rig.UseBlocks(blocks);
  // Once before, for the links to open and the buffers to grow.
  BATON_RETURN_IF_ERROR(rig.Ceiling(bytes).status());
  BATON_RETURN_IF_ERROR(rig.Transfer(bytes, false).status());
  BATON_RETURN_IF_ERROR(rig.Transfer(bytes, true).status());
  std::vector<double> ceiling, payload, checked, payload_share, checked_share, checked_us;
  const int count = RoundsFor(rounds, bytes);
  for (int round = 0; round < count; ++round) {
    BATON_ASSIGN_OR_RETURN(const absl::Duration raw, rig.Ceiling(bytes));
    BATON_ASSIGN_OR_RETURN(const absl::Duration plain, rig.Transfer(bytes, false));
    BATON_ASSIGN_OR_RETURN(const absl::Duration with_checksums, rig.Transfer(bytes, true));
    const auto rate = [bytes](absl::Duration time) {
      return static_cast<double>(bytes) / std::max(1e-9, absl::ToDoubleSeconds(time));
    };
    ceiling.push_back(rate(raw));
    payload.push_back(rate(plain));
    checked.push_back(rate(with_checksums));
    payload_share.push_back(payload.back() / ceiling.back());
    checked_share.push_back(checked.back() / ceiling.back());
    checked_us.push_back(absl::ToDoubleMicroseconds(with_checksums));
  }
  return KvBenchPoint{.kind = kind,
                      .blocks = blocks,
                      .bytes = bytes,
                      .ceiling = Median(ceiling),
                      .payload = Median(payload),
                      .checked = Median(checked),
                      .payload_share = Median(payload_share),
                      .checked_share = Median(checked_share),
                      .checked_us = Median(checked_us)};
}

}  // namespace

const char* KvBenchBlocksName(KvBenchBlocks blocks) { return blocks == KvBenchBlocks::kFresh ? "fresh" : "same"; }

absl::StatusOr<std::vector<KvBenchPoint>> RunKvBench(const KvBenchOptions& options,
                                                     const std::function<void(const KvBenchPoint&)>& on_point) {
  std::vector<int64_t> sizes = options.sizes;
  std::sort(sizes.begin(), sizes.end());
  if (sizes.empty()) return absl::InvalidArgumentError("no sizes to measure");
  for (const int64_t size : sizes) {
    if (size >= kKvBenchCellBytes && size % kKvBenchCellBytes == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("size ", FormatBytes(size), " is no multiple of ", FormatBytes(kKvBenchCellBytes)));
  }
  if (options.rounds < 1 || options.rounds > 1000) {
    return absl::InvalidArgumentError(absl::StrCat("rounds ", options.rounds, " is outside 1 to 1000"));
  }
  std::vector<KvBenchPoint> points;
  for (const TransportKind kind : options.kinds) {
    auto rig = KvBenchRig::Create(kind, sizes.back(), options.cuda_driver);
    if (!rig.ok()) return Annotate(rig.status(), TransportName(kind));
    for (const int64_t size : sizes) {
      for (const KvBenchBlocks blocks : {KvBenchBlocks::kFresh, KvBenchBlocks::kSame}) {
        if (blocks == KvBenchBlocks::kFresh && !(*rig)->ceiling_lands()) continue;
        auto point = Measure(**rig, kind, blocks, size, options.rounds);
        if (!point.ok()) return Annotate(point.status(), absl::StrCat(TransportName(kind), ", ", FormatBytes(size)));
        points.push_back(*point);
        on_point(*point);
      }
    }
  }
  return points;
}

}  // namespace baton::bench
