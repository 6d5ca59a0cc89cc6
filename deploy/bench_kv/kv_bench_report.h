// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_KV_KV_BENCH_REPORT_H_
#define BATON_DEPLOY_BENCH_KV_KV_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "deploy/bench_kv/kv_bench.h"

namespace baton::bench {

// A table, and GB/s over size as bars: '#' with checksums, '-' as far as the ceiling.
std::string KvBenchText(const std::vector<KvBenchPoint>& points);
// {"points":[{"transport","bytes","ceiling_gb_per_s","payload_gb_per_s","checked_gb_per_s","payload_share","checked_share",
// "transfer_us"}],"one_block_us":{"shm":...}}. GB are 10^9 bytes.
std::string KvBenchJson(const std::vector<KvBenchPoint>& points);

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_KV_KV_BENCH_REPORT_H_
