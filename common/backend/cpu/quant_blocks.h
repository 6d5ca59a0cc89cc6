// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_QUANT_BLOCKS_H_
#define BATON_COMMON_BACKEND_CPU_QUANT_BLOCKS_H_

#include <cstdint>

#include "common/format/ggml_types.h"

namespace baton::cpu {

// 32 consecutive elements of a row as integers: w[k] = scale[h] (q[k] - offset) + minimum[h], where h is 0, or k / 16 in
// types with groups of 16, and the offset is that of the type's QuantFormat (kernels.h).
struct IntegerGroup {
  uint8_t q[32];
  float scale[2];
  float minimum[2];
};

// Decodes `count` elements (whole blocks) of a type that QuantFormatFor knows into count / 32 groups. Exact: products of
// a half and a small integer fit in fp32.
void DecodeRow(GgmlType type, const uint8_t* bytes, int64_t count, IntegerGroup* groups);

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_QUANT_BLOCKS_H_
