// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of queries and keys, and the write of keys and values into the cache.
#include "common/backend/cuda/kernels/device_math.cuh"
#include "common/backend/cuda/kernels/kernel_types.h"

namespace baton::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxPairs = 4;  // Of a lane: head_dim at most 256.

// Elements of pair `i` of a head.
struct PairIndex {
  int first, second;
};
__device__ __forceinline__ PairIndex IndexOf(const RopeCacheParams& p, int i) {
  return p.interleaved != 0 ? PairIndex{2 * i, 2 * i + 1} : PairIndex{i, i + p.kv.head_dim / 2};
}

template <typename T>
__device__ void RopeCache(const RopeCacheParams& p) {
  const int row = blockIdx.x;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;  // Of q, then k, then v.
  const int lane = threadIdx.x % 32;
  const int num_kv_heads = p.kv.num_kv_heads, head_dim = p.kv.head_dim;
  const int num_all = p.num_heads + 2 * num_kv_heads;
  if (head >= num_all) return;
  const float* const in = p.qkv + (static_cast<long long>(row) * num_all + head) * head_dim;
  const float* const bias = p.bias == nullptr ? nullptr : p.bias + head * head_dim;
  const bool is_q = head < p.num_heads, is_v = head >= p.num_heads + num_kv_heads;
  float first[kMaxPairs], second[kMaxPairs];
  float squares = 0.0f;
#pragma unroll
  for (int n = 0; n < kMaxPairs; ++n) {
    const int i = lane + 32 * n;
    first[n] = second[n] = 0.0f;
    if (i >= head_dim / 2) continue;
    const PairIndex at = IndexOf(p, i);
    first[n] = in[at.first] + (bias == nullptr ? 0.0f : bias[at.first]);
    second[n] = in[at.second] + (bias == nullptr ? 0.0f : bias[at.second]);
    squares += first[n] * first[n] + second[n] * second[n];
  }
  const float* const norm = is_v ? nullptr : is_q ? p.q_norm : p.k_norm;
  float scale = 1.0f;
  if (norm != nullptr) scale = rsqrtf(WarpSum(squares) / static_cast<float>(head_dim) + p.norm_eps);
  const long long slot = p.slots[row];
  const long long block = slot / p.kv.block_size;
  const int offset = static_cast<int>(slot % p.kv.block_size);
  const int kv_head = is_v ? head - p.num_heads - num_kv_heads : head - p.num_heads;
  const float* const angles = p.cos_sin + static_cast<long long>(p.positions[row]) * head_dim;
#pragma unroll
  for (int n = 0; n < kMaxPairs; ++n) {
    const int i = lane + 32 * n;
    if (i >= head_dim / 2) continue;
    const PairIndex at = IndexOf(p, i);
    float a = first[n], b = second[n];
    if (norm != nullptr) {
      a *= scale * norm[at.first];
      b *= scale * norm[at.second];
    }
    if (!is_v) {
      const float2 turn = reinterpret_cast<const float2*>(angles)[i];
      const float turned = a * turn.x - b * turn.y;
      b = a * turn.y + b * turn.x;
      a = turned;
    }
    if (is_q) {
      float* const out = p.q + (static_cast<long long>(row) * p.num_heads + head) * head_dim;
      out[at.first] = a;
      out[at.second] = b;
    } else if (is_v) {
      T* const out = reinterpret_cast<T*>(p.kv.v + block * p.kv.block_stride) +
                     (static_cast<long long>(kv_head) * p.kv.block_size + offset) * head_dim;
      out[at.first] = FromFloat<T>(a);
      out[at.second] = FromFloat<T>(b);
    } else {
      T* const out = reinterpret_cast<T*>(p.kv.k + block * p.kv.block_stride) +
                     static_cast<long long>(kv_head) * head_dim * p.kv.block_size + offset;
      out[at.first * p.kv.block_size] = FromFloat<T>(a);
      out[at.second * p.kv.block_size] = FromFloat<T>(b);
    }
  }
}

}  // namespace
}  // namespace baton::cuda

extern "C" __global__ void __launch_bounds__(128) rope_cache_f16(baton::cuda::RopeCacheParams p) { baton::cuda::RopeCache<__half>(p); }
extern "C" __global__ void __launch_bounds__(128) rope_cache_bf16(baton::cuda::RopeCacheParams p) { baton::cuda::RopeCache<__nv_bfloat16>(p); }
