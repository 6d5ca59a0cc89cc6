// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_KV_INT8_H_
#define BATON_COMMON_BACKEND_KV_INT8_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace baton {

// K or V of one token and head as KvDtype::kInt8 has it: x = scale q with q in [-127, 127], scale = max |x| / 127, to nearest, ties
// to even. One that holds a value that is not finite gets a NaN scale, so that what reads it shows it. The CPU's kernels have the
// same arithmetic (common/backend/cpu/qkv_impl.h), to the bit. Returns the scale.
inline float QuantiseKvHead(const float* x, size_t n, int8_t* q) {
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::fmax(largest, std::fabs(x[i]));
  }
  const bool zero = !finite || largest < 1e-30f;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  for (size_t i = 0; i < n; ++i) q[i] = zero ? int8_t{0} : static_cast<int8_t>(std::rint(x[i] * inverse));
  return !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127.0f;
}

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_KV_INT8_H_
