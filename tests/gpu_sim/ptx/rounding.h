// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_ROUNDING_H_
#define BATON_TESTS_GPU_SIM_PTX_ROUNDING_H_

#include "tests/gpu_sim/ptx/types.h"

namespace baton::ptx {

// A binary floating point format: p bits with the hidden one, exponents from min_exponent (of the least normal number).
struct FloatFormat {
  int precision;
  int min_exponent;
  double max_finite;
};
inline constexpr FloatFormat kHalfFormat{11, -14, 65504.0};
inline constexpr FloatFormat kBFloat16Format{8, -126, 0x1.fep127};
inline constexpr FloatFormat kFloatFormat{24, -126, 0x1.fffffep127};

// `value` rounded once to the format, subnormals included; too large is infinity or the largest number, by the mode. Any of the
// four modes that do not round to an integer. NaN and infinity stay.
double RoundTo(double value, const FloatFormat& format, Rounding rounding);

// `value` rounded to an integer by the mode (both names of a mode do the same).
double RoundToInteger(double value, Rounding rounding);

// Whether `value` is subnormal as fp32.
inline bool IsSubnormal(double value) { return value != 0 && value < 0x1p-126 && value > -0x1p-126; }

// [0, 1], NaN to 0: what .sat does to a float.
inline double Saturate(double value) { return value > 0 ? (value < 1 ? value : 1.0) : 0.0; }

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_ROUNDING_H_
