// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_ROUTER_METRICS_H_
#define BATON_ROUTER_ROUTER_METRICS_H_

#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/metrics.h"
#include "router/phase_clock.h"

namespace baton {

// The router's series. Thread-safe; `registry` outlives this.
class RouterMetrics {
 public:
  explicit RouterMetrics(MetricRegistry* registry);

  // `reason`: "stop", "length", or a code's name ("cancelled", "invalid_argument", ...).
  void CountFinished(absl::string_view reason);
  // Where a finished request's time went.
  void ObservePhases(const PhaseClock& phases);
  // `kind`: "prefill" or "decode".
  void CountRecovery(absl::string_view kind);

  Gauge* const waiting;
  Gauge* const running;
  Histogram* const time_to_first_token;
  Histogram* const inter_token_latency;
  Histogram* const request_seconds;
  Histogram* const queue_seconds;
  Counter* const prompt_tokens;
  Counter* const cached_tokens;
  Counter* const completion_tokens;
  Counter* const unknown_fields;

 private:
  Counter* FinishedCounter(absl::string_view reason);
  Counter* RecoveryCounter(absl::string_view kind);

  MetricRegistry* const registry_;
  std::array<Histogram*, kNumPhases> phases_;
};

// Shows what there is under the names of vLLM's metrics too, which its dashboards and the Gateway API inference extension's
// picker read.
void AddVllmNames(const std::string& model, MetricRegistry* registry);

// "invalid_argument": a code as metrics and logs spell it.
std::string CodeName(absl::StatusCode code);

}  // namespace baton

#endif  // BATON_ROUTER_ROUTER_METRICS_H_
