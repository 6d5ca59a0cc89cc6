// SPDX-License-Identifier: Apache-2.0
// Matrix times up to 64 vectors for decode, straight from quantised weights, which are read once: quant_gemv's results, bit for bit, by
// tensor cores. The dot products of half blocks are exact in integers; a row's float sums keep quant_gemv's order, so each warp has the
// blocks of two of its lanes, for all rows and vectors of the thread block, and the warps come together at the end as those lanes do.
#include "common/backend/cuda/kernels/quant_block.cuh"

namespace baton::cuda {
namespace {

constexpr int kTileRows = 16, kTileVectors = 8, kOutputs = kTileRows * kTileVectors;  // Of one mma.
constexpr int kStride = kOutputs + 8;  // So that a warp's reads of sums lie in different banks.

// Products of 16 rows with 8 vectors over 16 columns, from `c`.
__device__ __forceinline__ void MultiplyAdd(int (&c)[4], unsigned a0, unsigned a1, unsigned b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(b));
}

// An integer below 2^22 added to these bits is the float 1.5 * 2^23 plus it.
constexpr int kIntegerBits = 0x4b400000;
__device__ __forceinline__ float IntegerOf(int bits) { return __int_as_float(bits) - 12582912.0f; }

// What a lane has of a row's block: columns 4 (lane % 4) and on of each half.
template <int kBits>
struct RowPart {
  unsigned quants[2];  // 4 and 5 bits: both halves in the first.
  unsigned high;

  __device__ __forceinline__ void Load(const unsigned* all_quants, const unsigned* all_high, unsigned block, int t) {
    quants[0] = all_quants[(kBits == 8 ? 8 : 4) * block + t];
    if constexpr (kBits == 8) quants[1] = all_quants[8 * block + 4 + t];
    if constexpr (kBits == 5) high = all_high[block];
  }
  __device__ __forceinline__ unsigned Half(int half, int t) const {
    if constexpr (kBits == 8) return quants[half];
    const unsigned low = quants[0] >> 4 * half & 0x0f0f0f0fu;
    if constexpr (kBits == 4) return low;
    return low | FifthBits(high >> (16 * half + 4 * t));
  }
};

// Adds up what the warps have of one tile, in the order of WarpSum over quant_gemv's lanes, and stores it.
__device__ __forceinline__ void Join(const float (&sums)[2][4], float (*parts)[kStride], int first_row, int num_rows, int first_vector, int num_vectors,
                                     float* y, long long y_stride) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* const part = parts[2 * warp + half] + g * kTileVectors + 2 * t;
    *reinterpret_cast<float2*>(part) = make_float2(sums[half][0], sums[half][1]);
    *reinterpret_cast<float2*>(part + 8 * kTileVectors) = make_float2(sums[half][2], sums[half][3]);
  }
  __syncthreads();
  const int output = threadIdx.x / 4;
  float lanes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) lanes[i] = parts[4 * i + t][output];
#pragma unroll
  for (int step = 4; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  float sum = lanes[0];
  sum += __shfl_xor_sync(kFullWarp, sum, 2);
  sum += __shfl_xor_sync(kFullWarp, sum, 1);
  const int row = first_row + output / kTileVectors, vector = first_vector + output % kTileVectors;
  if (t == 0 && row < num_rows && vector < num_vectors) y[vector * y_stride + row] = sum;
  __syncthreads();
}

// 16 kRowTiles rows by 8 kVectorTiles vectors. Rows that are not there are the last one again; what is not there is not stored.
template <int kBits, int kRowTiles, int kVectorTiles>
__device__ __forceinline__ void QuantGemm(const unsigned* quants, const unsigned* high, const __half2* scales, const unsigned* x, const float2* x_scales,
                                          int num_rows, int num_blocks, int num_vectors, float* y, long long y_stride) {
  __shared__ float parts[2 * kLanesOfBlocks][kStride];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int first_row = blockIdx.x * kTileRows * kRowTiles;
  float sums[kRowTiles][kVectorTiles][2][4] = {};
  RowPart<kBits> next[kRowTiles][2];
  const auto first_block = [&](int i) { return static_cast<unsigned>(min(first_row + 8 * i + g, num_rows - 1)) * num_blocks; };
  const auto load = [&](int block) {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) next[i / 2][i % 2].Load(quants, high, first_block(i) + block, t);
  };
  // The next block's are on their way while one is multiplied, where there are registers for both.
  constexpr bool kAhead = kRowTiles * kVectorTiles < 8;
  if (kAhead && warp < num_blocks) load(warp);
  for (int block = warp; block < num_blocks; block += kLanesOfBlocks) {
    if (!kAhead) load(block);
    unsigned a[kRowTiles][2][2];
    float2 scale[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const RowPart<kBits>& part = next[i / 2][i % 2];
      a[i / 2][0][i % 2] = part.Half(0, t);
      a[i / 2][1][i % 2] = part.Half(1, t);
      scale[i / 2][i % 2] = __half22float2(scales[first_block(i) + block]);
    }
    if (kAhead && block + kLanesOfBlocks < num_blocks) load(block + kLanesOfBlocks);
#pragma unroll
    for (int v = 0; v < kVectorTiles; ++v) {
      const unsigned mine = static_cast<unsigned>(8 * v + g) * num_blocks + block, column = static_cast<unsigned>(8 * v + 2 * t) * num_blocks + block;
      const unsigned b[2] = {x[8 * mine + t], x[8 * mine + 4 + t]};
      const float2 by[2] = {x_scales[column], x_scales[column + num_blocks]};
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int dots[4] = {kIntegerBits, kIntegerBits, kIntegerBits, kIntegerBits};
          MultiplyAdd(dots, a[r][half][0], a[r][half][1], b[half]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& sum = sums[r][v][half][i];
            sum = __fadd_rn(sum, HalfBlockTerm(scale[r][i / 2], by[i % 2], IntegerOf(dots[i]), half));
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int v = 0; v < kVectorTiles; ++v) {
      Join(sums[r][v], parts, first_row + kTileRows * r, num_rows, kTileVectors * v, num_vectors, y, y_stride);
    }
  }
}

}  // namespace
}  // namespace baton::cuda

// quant_gemm_qBITS_vVECTORS: num_vectors of up to VECTORS vectors, and `tiles` times 16 rows, per block of 512 threads. x and x_scales, as of
// quantize_rows, are read for all VECTORS. `high` is read for 5 bits only. The results of vector b begin at y + b * y_stride. A matrix has
// less than 2^28 blocks.
#define BATON_QUANT_GEMM(bits, vectors, tiles)                                                                                      \
  extern "C" __global__ void __launch_bounds__(512)                                                                                \
      quant_gemm_q##bits##_v##vectors(const unsigned* quants, const unsigned* high, const __half2* scales, const unsigned* x,      \
                                      const float2* x_scales, int num_rows, int num_blocks, int num_vectors, float* y,             \
                                      long long y_stride) {                                                                        \
    baton::cuda::QuantGemm<bits, tiles, vectors / 8>(quants, high, scales, x, x_scales, num_rows, num_blocks, num_vectors, y, y_stride); \
  }
BATON_QUANT_GEMM(4, 16, 2)
BATON_QUANT_GEMM(4, 32, 2)
BATON_QUANT_GEMM(4, 64, 1)
BATON_QUANT_GEMM(5, 16, 2)
BATON_QUANT_GEMM(5, 32, 2)
BATON_QUANT_GEMM(5, 64, 1)
BATON_QUANT_GEMM(8, 16, 2)
BATON_QUANT_GEMM(8, 32, 2)
BATON_QUANT_GEMM(8, 64, 1)
