// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_PHASE_METER_H_
#define BATON_COMMON_ENGINE_PHASE_METER_H_

#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// What passes did in one phase (prefill or decode), by the formulas of common/model/work.h, and the time they took.
struct PhaseWork {
  double passes = 0;
  double tokens = 0;   // Rows: prompt tokens computed, or output tokens.
  double pairs = 0;    // Query-key pairs, per head and layer.
  double ops = 0;
  double bytes = 0;    // Weights as stored, and cached keys and values.
  double seconds = 0;  // In the forward pass and behind it (sampling, delivery), pauses left out.

  PhaseWork& operator+=(const PhaseWork& other);
  PhaseWork Scaled(double factor) const;
};

// Adds up a phase's passes: since start, and recent ones alone, so that rates follow what goes on now and stay where they were
// while there is nothing to do. One thread.
class PhaseMeter {
 public:
  // Busy time after which a pass counts 1/e.
  static constexpr absl::Duration kMemory = absl::Seconds(2);

  void Add(const PhaseWork& pass);
  const PhaseWork& total() const { return total_; }
  // Weighted sums: only their ratios mean something.
  const PhaseWork& recent() const { return recent_; }

 private:
  PhaseWork total_, recent_;
};

// Ratios of recent work; all 0 before the first pass.
struct PhaseRates {
  double tokens_per_second = 0;
  double ops_per_second = 0;
  double bytes_per_second = 0;
  double ops_per_pass = 0;
  double bytes_per_pass = 0;
  double tokens_per_pass = 0;
};
PhaseRates RatesOf(const PhaseWork& recent);

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_PHASE_METER_H_
