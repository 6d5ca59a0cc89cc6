// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_PERFORMANCE_H_
#define BATON_COMMON_WORKER_PERFORMANCE_H_

#include <functional>
#include <memory>
#include <vector>

#include "baton/internal/registry.pb.h"
#include "common/backend/backend.h"
#include "common/base/metrics.h"
#include "common/engine/engine_core.h"

namespace baton {

// How fast a worker is, and of what: prefill in prompt tokens per second and of its arithmetic peak, decode in output tokens per
// second and of the read bandwidth. This is the reason for two kinds of worker.
internal::MachinePeaks PeaksMessage(const MachinePeaks& peaks);
internal::PhasePerformance PrefillPerformance(const EngineStats& stats, const MachinePeaks& peaks);
internal::PhasePerformance DecodePerformance(const EngineStats& stats, const MachinePeaks& peaks);

// The same as metrics; `stats` is called at each rendering, any thread, until the handles are gone.
std::vector<std::shared_ptr<MetricRegistry::Callback>> ExportPerformance(MetricRegistry* metrics, const MachinePeaks& peaks,
                                                                         std::function<EngineStats()> stats);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_PERFORMANCE_H_
