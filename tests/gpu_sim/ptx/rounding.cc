// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::ptx {

double RoundToInteger(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
    case Rounding::kZeroInteger:
      return std::trunc(value);
    case Rounding::kDown:
    case Rounding::kDownInteger:
      return std::floor(value);
    case Rounding::kUp:
    case Rounding::kUpInteger:
      return std::ceil(value);
    default:
      return std::nearbyint(value);  // The process's mode is to nearest, ties to even.
  }
}

double RoundTo(double value, const FloatFormat& format, Rounding rounding) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const int last = exponent - (format.precision - 1);  // Of the last bit kept; scaling by powers of two is exact.
  const double rounded = std::ldexp(RoundToInteger(std::ldexp(value, -last), rounding), last);
  if (std::abs(rounded) <= format.max_finite) return std::copysign(rounded, value);
  const bool stays = rounding == Rounding::kZero || (rounding == Rounding::kDown && value > 0) ||
                     (rounding == Rounding::kUp && value < 0);
  return std::copysign(stays ? format.max_finite : std::numeric_limits<double>::infinity(), value);
}

}  // namespace baton::ptx
