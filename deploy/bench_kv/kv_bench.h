// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_KV_KV_BENCH_H_
#define BATON_DEPLOY_BENCH_KV_KV_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_transfer/transport_kind.h"

namespace baton::bench {

// A block's part of a layer: sizes are multiples of it.
inline constexpr int64_t kKvBenchCellBytes = 64 << 10;

struct KvBenchOptions {
  std::vector<TransportKind> kinds;
  std::vector<int64_t> sizes;  // Bytes, each a multiple of kKvBenchCellBytes.
  int rounds = 9;              // Per size and kind; fewer from 64 MiB on, at least 3.
  std::string cuda_driver;     // By which the kinds of device memory are open.
};

// Which blocks the measurements of a point go through.
enum class KvBenchBlocks {
  kFresh,  // Others every time, until more than the caches hold has passed: as those of a transfer that serves.
  kSame,   // The same ones again and again: what fits into the caches is there.
};
const char* KvBenchBlocksName(KvBenchBlocks blocks);  // "fresh", "same".

// Medians over the rounds. Bytes per second.
struct KvBenchPoint {
  TransportKind kind;
  KvBenchBlocks blocks = KvBenchBlocks::kSame;
  int64_t bytes = 0;
  double ceiling = 0;          // What the way itself can carry.
  double payload = 0;          // Without checksums.
  double checked = 0;          // As served.
  double payload_share = 0;    // Of the ceiling, 0 to 1 and a little.
  double checked_share = 0;
  double checked_us = 0;       // One transfer.
};

// Measures; `on_point` after each point. Sizes ascend within a kind; of a size that is held against memcpy kFresh comes first.
//   INVALID_ARGUMENT  a size that is no multiple, or none; UNAVAILABLE, RESOURCE_EXHAUSTED  a transport or the memory for it.
absl::StatusOr<std::vector<KvBenchPoint>> RunKvBench(const KvBenchOptions& options,
                                                     const std::function<void(const KvBenchPoint&)>& on_point);

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_KV_KV_BENCH_H_
