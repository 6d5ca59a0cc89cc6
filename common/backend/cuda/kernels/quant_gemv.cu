// SPDX-License-Identifier: Apache-2.0
// Matrix times few vectors for decode, straight from quantised weights: y[b, row] = sum over i of W[row, i] x[b, i].
//
// Weights, per row and block of 32 columns:
//   quants  4 bits: 16 bytes, byte j has columns j (low nibble) and j + 16;  8 bits: 32 signed bytes
//   high    5 bits only: bit j is the fifth bit of column j
//   scales  half2 (scale, minimum): w = scale * quant + minimum; 8 bits: minimum 0
// Activations are 8 bits with a scale per 32 columns (quantize_rows): products are exact in int32, so that a row's result does not
// depend on how the columns are spread over the lanes, but for the fixed order in which blocks are added.
#include "common/backend/cuda/kernels/quant_block.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarps = 4;

// One half of a block's quants, as four words of four signed bytes, in the order of the columns.
template <int kBits>
__device__ __forceinline__ void LoadHalf(const uint4* quants, const unsigned* high, long long block, int half, int (&words)[4]) {
  const uint4 packed = quants[kBits == 8 ? 2 * block + half : block];
  const unsigned all[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = static_cast<int>(kBits == 8 ? all[i] : all[i] >> 4 * half & 0x0f0f0f0fu);
  if constexpr (kBits == 5) {
    const unsigned bits = high[block] >> 16 * half;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] |= static_cast<int>(FifthBits(bits >> 4 * i));
    }
  }
}

// A warp per row, two lanes per block: lanes 2i and 2i + 1 take blocks i, i + 16 and so on, so that all loads lie side by side.
template <int kBits, int kBatch>
__device__ void QuantGemv(const uint4* quants, const unsigned* high, const __half2* scales, const int4* x, const float2* x_scales,
                          int num_rows, int num_blocks, float* y, long long y_stride) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32, half = lane % 2;
  if (row >= num_rows) return;
  float sums[kBatch] = {};
  for (int i = lane / 2; i < num_blocks; i += kLanesOfBlocks) {
    const long long block = static_cast<long long>(row) * num_blocks + i;
    int words[4];
    LoadHalf<kBits>(quants, high, block, half, words);
    const float2 scale = __half22float2(scales[block]);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const long long at = static_cast<long long>(b) * num_blocks + i;
      const int4 values = x[2 * at + half];
      int dot = __dp4a(words[0], values.x, 0);
      dot = __dp4a(words[1], values.y, dot);
      dot = __dp4a(words[2], values.z, dot);
      dot = __dp4a(words[3], values.w, dot);
      const float2 by = x_scales[at];  // Scale, and the sum of the 32 values it stands for.
      sums[b] = __fadd_rn(sums[b], HalfBlockTerm(scale, by, static_cast<float>(dot), half));
    }
  }
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    const float sum = WarpSum(sums[b]);
    if (lane == 0) y[b * y_stride + row] = sum;
  }
}

}  // namespace
}  // namespace baton::cuda

// Rounds rows of activations to 8 bits: per 32 columns a scale (the largest magnitude / 127) and the sum of the rounded values.
//   x [num_rows, n], quants [num_rows, n], scales [num_rows, n / 32]; a warp per block of 32, grid-stride over all of them.
extern "C" __global__ void __launch_bounds__(128)
quantize_rows(const float* x, long long num_blocks, signed char* quants, float2* scales) {
  const int lane = threadIdx.x % 32;
  for (long long block = blockIdx.x * 4 + threadIdx.x / 32; block < num_blocks; block += gridDim.x * 4) {
    const float value = x[block * 32 + lane];
    const float scale = baton::cuda::WarpMax(fabsf(value)) / 127.0f;
    const int rounded = scale > 0.0f ? __float2int_rn(value / scale) : 0;
    const float sum = baton::cuda::WarpSum(static_cast<float>(rounded));
    quants[block * 32 + lane] = static_cast<signed char>(rounded);
    if (lane == 0) scales[block] = make_float2(scale, scale * sum);
  }
}

// quant_gemv_qBITS_bBATCH: 4 rows per block of 128 threads. `high` is read for 5 bits only. The results of vector b begin at
// y + b * y_stride: a matrix may be one of several that are stacked.
#define BATON_QUANT_GEMV(bits, batch)                                                                                         \
  extern "C" __global__ void __launch_bounds__(128)                                                                          \
      quant_gemv_q##bits##_b##batch(const uint4* quants, const unsigned* high, const __half2* scales, const int4* x,         \
                                    const float2* x_scales, int num_rows, int num_blocks, float* y, long long y_stride) {   \
    baton::cuda::QuantGemv<bits, batch>(quants, high, scales, x, x_scales, num_rows, num_blocks, y, y_stride);               \
  }
BATON_QUANT_GEMV(4, 1)
BATON_QUANT_GEMV(4, 4)
BATON_QUANT_GEMV(4, 8)
BATON_QUANT_GEMV(5, 1)
BATON_QUANT_GEMV(5, 4)
BATON_QUANT_GEMV(5, 8)
BATON_QUANT_GEMV(8, 1)
BATON_QUANT_GEMV(8, 4)
BATON_QUANT_GEMV(8, 8)
