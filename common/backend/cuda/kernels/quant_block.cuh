// SPDX-License-Identifier: Apache-2.0
// What the kernels for quantised weights share. A row's sums have one order, whoever multiplies: lane l of 32 has half l % 2 of the blocks
// l / 2, l / 2 + 16 and so on, adds them up in that order, and the lanes come together in WarpSum's.
#pragma once

#include "common/backend/cuda/kernels/device_math.cuh"

namespace baton::cuda {

constexpr int kLanesOfBlocks = 16;  // Two lanes to a block.

// Bit 4 of four bytes: bits [0, 4) of `bits`.
__device__ __forceinline__ unsigned FifthBits(unsigned bits) {
  return (bits & 1u) << 4 | (bits & 2u) << 11 | (bits & 4u) << 18 | (bits & 8u) << 25;
}

// A half block's part of a sum: `scale` (scale, minimum) of the weights, `by` (scale, sum of what it stands for) of the activations. The
// minimum belongs to the first half. The roundings are these and no others.
__device__ __forceinline__ float HalfBlockTerm(float2 scale, float2 by, float dot, int half) {
  return __fmaf_rn(__fmul_rn(scale.x, by.x), dot, half == 0 ? __fmul_rn(scale.y, by.y) : 0.0f);
}

}  // namespace baton::cuda
