// SPDX-License-Identifier: Apache-2.0
// Attention of one new token per sequence over its paged context. The queries that share a KV head are computed together, so that
// a key or value is read once for all of them. A context is cut at fixed positions, whatever the batch: the bits of a sequence
// depend on its own context alone.
#include "common/backend/cuda/kernels/device_math.cuh"
#include "common/backend/cuda/kernels/kernel_types.h"

namespace baton::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kTile = 16;  // Keys a warp takes at a time.

// Scores of 16 keys: K is [head_dim, block_size] here, two lanes read the 16 keys of one dimension, 8 each.
template <typename T, int kGroup, int kHeadDim>
__device__ __forceinline__ void ScoreTile(const T* k, int block_size, const float* q, int lane, float (&scores)[kGroup]) {
  float sums[kGroup][8] = {};
  const int keys = lane % 2 * 8;
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const int dim = step * 16 + lane / 2;
    const uint4 packed = *reinterpret_cast<const uint4*>(k + dim * block_size + keys);
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const float by = q[g * kHeadDim + dim];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const float2 values = UnpackPair(words[pair], T());
        sums[g][2 * pair] += by * values.x;
        sums[g][2 * pair + 1] += by * values.y;
      }
    }
  }
  // The 16 lanes of a half add up their dimensions; lane l then keeps key l % 16: key 8 (l % 2) + l / 2 % 8.
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float mine = 0.0f;
#pragma unroll
    for (int key = 0; key < 8; ++key) {
      float sum = sums[g][key];
#pragma unroll
      for (int step = 2; step < 32; step *= 2) sum += __shfl_xor_sync(kFullWarp, sum, step);
      if (lane / 2 % 8 == key) mine = sum;
    }
    scores[g] = mine;
  }
}

template <typename T, int kGroup, int kHeadDim>
__device__ void DecodeAttention(const DecodeAttentionParams& p) {
  constexpr int kDims = kHeadDim / 32;  // Of the output, per lane.
  static_assert(kDims == 2 || kDims == 4);
  __shared__ float q[kGroup * kHeadDim];
  __shared__ float weights[kWarps][kGroup][kTile];
  __shared__ float joined[kWarps][kGroup][kHeadDim];
  __shared__ float joined_max_sum[kWarps][kGroup][2];
  const int split = blockIdx.x, kv_head = blockIdx.y, sequence = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = split * p.split_tokens;
  const int end = min(begin + p.split_tokens, p.context_lengths[sequence]);
  if (begin >= end) return;  // The whole block: nobody waits below.
  const int first_head = kv_head * kGroup;
  for (int i = threadIdx.x; i < kGroup * kHeadDim; i += blockDim.x) {
    q[i] = p.q[(static_cast<long long>(sequence) * p.num_heads + first_head) * kHeadDim + i] * p.scale;
  }
  __syncthreads();
  float maximum[kGroup], sum[kGroup], out[kGroup][kDims];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    maximum[g] = -INFINITY;
    sum[g] = 0.0f;
#pragma unroll
    for (int d = 0; d < kDims; ++d) out[g][d] = 0.0f;
  }
  const int table_index = p.table_of == nullptr ? sequence : p.table_of[sequence];
  const int* const table = p.block_tables + static_cast<long long>(table_index) * p.max_blocks;
  const int key_of_lane = lane % 2 * 8 + lane / 2 % 8;
  for (int tile = begin + warp * kTile; tile < end; tile += kWarps * kTile) {
    const long long block = table[tile / p.kv.block_size];
    const int inside = tile % p.kv.block_size;
    const T* const k = reinterpret_cast<const T*>(p.kv.k + block * p.kv.block_stride) +
                       static_cast<long long>(kv_head) * kHeadDim * p.kv.block_size + inside;
    const T* const v = reinterpret_cast<const T*>(p.kv.v + block * p.kv.block_stride) +
                       (static_cast<long long>(kv_head) * p.kv.block_size + inside) * kHeadDim;
    float scores[kGroup];
    ScoreTile<T, kGroup, kHeadDim>(k, p.kv.block_size, q, lane, scores);
    const int valid = min(kTile, end - tile);
    __syncwarp();  // All lanes have read the last tile's weights.
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      const float score = key_of_lane < valid ? scores[g] : -INFINITY;
      const float now = fmaxf(maximum[g], WarpMax(score));
      const float weight = __expf(score - now);
      const float shrink = __expf(maximum[g] - now);
      maximum[g] = now;
      sum[g] = sum[g] * shrink + 0.5f * WarpSum(weight);  // Each key is held by two lanes.
#pragma unroll
      for (int d = 0; d < kDims; ++d) out[g][d] *= shrink;
      if (lane < 16) weights[warp][g][key_of_lane] = weight;
    }
    __syncwarp();
    for (int key = 0; key < valid; ++key) {  // Slots behind the context may hold anything, NaN too.
      unsigned packed[kDims / 2];
      const T* const from = v + key * kHeadDim + lane * kDims;  // The warp's loads lie side by side.
      if constexpr (kDims == 4) *reinterpret_cast<uint2*>(packed) = *reinterpret_cast<const uint2*>(from);
      else packed[0] = *reinterpret_cast<const unsigned*>(from);
      float value[kDims];
#pragma unroll
      for (int d = 0; d < kDims; d += 2) {
        const float2 pair = UnpackPair(packed[d / 2], T());
        value[d] = pair.x;
        value[d + 1] = pair.y;
      }
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float weight = weights[warp][g][key];
#pragma unroll
        for (int d = 0; d < kDims; ++d) out[g][d] += weight * value[d];
      }
    }
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
#pragma unroll
    for (int d = 0; d < kDims; ++d) joined[warp][g][lane * kDims + d] = out[g][d];
    if (lane == 0) {
      joined_max_sum[warp][g][0] = maximum[g];
      joined_max_sum[warp][g][1] = sum[g];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kGroup * kHeadDim; i += blockDim.x) {
    const int g = i / kHeadDim, dim = i % kHeadDim;
    float all = -INFINITY;
    for (int w = 0; w < kWarps; ++w) all = fmaxf(all, joined_max_sum[w][g][0]);
    float total = 0.0f, value = 0.0f;
    for (int w = 0; w < kWarps; ++w) {  // A warp without a tile has -infinity and a weight of 0.
      const float weight = __expf(joined_max_sum[w][g][0] - all);
      total += weight * joined_max_sum[w][g][1];
      value += weight * joined[w][g][dim];
    }
    const long long at = (static_cast<long long>(sequence) * p.num_heads + first_head + g) * p.num_splits + split;
    p.partial[at * kHeadDim + dim] = value;
    if (dim == 0) {
      p.partial_max_sum[2 * at] = all;
      p.partial_max_sum[2 * at + 1] = total;
    }
  }
}

// Grid (num_heads, num_sequences), head_dim threads. A split behind the context was never written and is not read.
__device__ void Combine(const DecodeAttentionParams& p) {
  const int head = blockIdx.x, sequence = blockIdx.y, dim = threadIdx.x;
  const int num_splits = (p.context_lengths[sequence] + p.split_tokens - 1) / p.split_tokens;
  const long long first = (static_cast<long long>(sequence) * p.num_heads + head) * p.num_splits;
  float maximum = -INFINITY;
  for (int split = 0; split < num_splits; ++split) maximum = fmaxf(maximum, p.partial_max_sum[2 * (first + split)]);
  float sum = 0.0f, value = 0.0f;
  for (int split = 0; split < num_splits; ++split) {
    const float weight = __expf(p.partial_max_sum[2 * (first + split)] - maximum);
    sum += weight * p.partial_max_sum[2 * (first + split) + 1];
    value += weight * p.partial[(first + split) * p.kv.head_dim + dim];
  }
  p.out[(static_cast<long long>(sequence) * p.num_heads + head) * p.kv.head_dim + dim] = value / sum;
}

}  // namespace
}  // namespace baton::cuda

// decode_attention_TYPE_gGROUP_dHEAD_DIM: GROUP = num_heads / num_kv_heads. Three blocks on a multiprocessor: left to itself ptxas spills
// for a fourth.
#define BATON_DECODE_ATTENTION(name, type, group, head_dim)                                                   \
  extern "C" __global__ void __launch_bounds__(128, 3)                                                          \
      decode_attention_##name##_g##group##_d##head_dim(baton::cuda::DecodeAttentionParams p) {               \
    baton::cuda::DecodeAttention<type, group, head_dim>(p);                                                  \
  }
BATON_DECODE_ATTENTION(f16, __half, 1, 64)
BATON_DECODE_ATTENTION(f16, __half, 2, 64)
BATON_DECODE_ATTENTION(f16, __half, 3, 64)
BATON_DECODE_ATTENTION(f16, __half, 4, 64)
BATON_DECODE_ATTENTION(f16, __half, 7, 64)
BATON_DECODE_ATTENTION(f16, __half, 8, 64)
BATON_DECODE_ATTENTION(f16, __half, 1, 128)
BATON_DECODE_ATTENTION(f16, __half, 2, 128)
BATON_DECODE_ATTENTION(f16, __half, 4, 128)
BATON_DECODE_ATTENTION(f16, __half, 7, 128)
BATON_DECODE_ATTENTION(f16, __half, 8, 128)
BATON_DECODE_ATTENTION(bf16, __nv_bfloat16, 4, 128)

extern "C" __global__ void __launch_bounds__(256) attention_combine(baton::cuda::DecodeAttentionParams p) { baton::cuda::Combine(p); }
