// SPDX-License-Identifier: Apache-2.0
#include "common/engine/phase_meter.h"

#include <cmath>

namespace baton {

PhaseWork& PhaseWork::operator+=(const PhaseWork& other) {
  passes += other.passes;
  tokens += other.tokens;
  pairs += other.pairs;
  ops += other.ops;
  bytes += other.bytes;
  seconds += other.seconds;
  return *this;
}

PhaseWork PhaseWork::Scaled(double factor) const {
  return {passes * factor, tokens * factor, pairs * factor, ops * factor, bytes * factor, seconds * factor};
}

void PhaseMeter::Add(const PhaseWork& pass) {
  total_ += pass;
  recent_ = recent_.Scaled(std::exp(-pass.seconds / absl::ToDoubleSeconds(kMemory)));
  recent_ += pass;
}

PhaseRates RatesOf(const PhaseWork& recent) {
  PhaseRates rates;
  if (recent.seconds > 0) {
    rates.tokens_per_second = recent.tokens / recent.seconds;
    rates.ops_per_second = recent.ops / recent.seconds;
    rates.bytes_per_second = recent.bytes / recent.seconds;
  }
  if (recent.passes > 0) {
    rates.ops_per_pass = recent.ops / recent.passes;
    rates.bytes_per_pass = recent.bytes / recent.passes;
    rates.tokens_per_pass = recent.tokens / recent.passes;
  }
  return rates;
}

}  // namespace baton
