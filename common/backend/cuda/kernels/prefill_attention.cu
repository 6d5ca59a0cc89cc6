// SPDX-License-Identifier: Apache-2.0
// Causal flash attention on tensor cores: scores of 64 rows against 32 keys at a time, kept in registers, with a running maximum
// and sum per row; keys and values come by cp.async, the next tile while this one is computed. Key tiles begin at fixed positions:
// a row's bits depend on its own context alone.
#include "common/backend/cuda/kernels/device_math.cuh"
#include "common/backend/cuda/kernels/kernel_types.h"

namespace baton::cuda {
namespace {

constexpr int kRows = 64, kKeys = 32, kThreads = 128;
constexpr int kChunk = 16;  // Keys side by side in every pool: block sizes are multiples of it.

// Rows of both tiles are padded so that the eight rows that ldmatrix reads at once lie in different banks.
template <typename T, int kHeadDim>
struct alignas(16) Tile {
  T k[kHeadDim][kKeys + 8];
  T v[kKeys][kHeadDim + 8];
};

__device__ __forceinline__ unsigned SharedAddress(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

// 16 bytes, of which `valid` (0 or 16) are read; the rest becomes zero.
__device__ __forceinline__ void CopyAsync(void* to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(to)), "l"(from), "r"(valid) : "memory");
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kGroups>
__device__ __forceinline__ void WaitCopies() { asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory"); }

// Four 8 x 8 matrices, transposed; the address is that of the lane's row.
__device__ __forceinline__ void LoadTransposed(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(SharedAddress(row)) : "memory");
}

__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, __half) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, __nv_bfloat16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename T>
__device__ __forceinline__ unsigned Pack(float low, float high) {
  const T pair[2] = {FromFloat<T>(low), FromFloat<T>(high)};
  return *reinterpret_cast<const unsigned*>(pair);
}

// Begins the copies of keys [first, first + 32); what lies at or behind `end` is zero: a probability of 0 times anything else
// that the cache may hold there would be a NaN.
template <typename T, int kHeadDim>
__device__ void FetchTile(const PrefillAttentionParams& p, const int* table, int kv_head, int first, int end, Tile<T, kHeadDim>* tile) {
  constexpr int kVector = 16 / sizeof(T);
  for (int i = threadIdx.x; i < kHeadDim * kKeys / kVector; i += kThreads) {
    const int dim = i / (kKeys / kVector), key = i % (kKeys / kVector) * kVector;
    const int at = first + key / kChunk * kChunk;
    const bool there = at < end;
    const long long block = there ? table[at / p.kv.block_size] : 0;
    const T* const from = reinterpret_cast<const T*>(p.kv.k + block * p.kv.block_stride) +
                          (static_cast<long long>(kv_head) * kHeadDim + dim) * p.kv.block_size + at % p.kv.block_size + key % kChunk;
    CopyAsync(&tile->k[dim][key], from, there ? 16 : 0);
  }
  for (int i = threadIdx.x; i < kKeys * kHeadDim / kVector; i += kThreads) {
    const int key = i / (kHeadDim / kVector), dim = i % (kHeadDim / kVector) * kVector;
    const int at = first + key;
    const bool there = at < end;
    const long long block = there ? table[at / p.kv.block_size] : 0;
    const T* const from = reinterpret_cast<const T*>(p.kv.v + block * p.kv.block_stride) +
                          (static_cast<long long>(kv_head) * p.kv.block_size + at % p.kv.block_size) * kHeadDim + dim;
    CopyAsync(&tile->v[key][dim], from, there ? 16 : 0);
  }
}

template <typename T, int kHeadDim>
__device__ void PrefillAttention(const PrefillAttentionParams& p) {
  constexpr int kSteps = kHeadDim / 16, kOutTiles = kHeadDim / 8, kKeyTiles = kKeys / 8;
  __shared__ Tile<T, kHeadDim> tiles[2];
  const int sequence = blockIdx.z, head = blockIdx.y;
  const int row_begin = p.query_starts[sequence], num_rows = p.query_starts[sequence + 1] - row_begin;
  const int tile_row = blockIdx.x * kRows;
  if (tile_row >= num_rows) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
  const int kv_head = head / (p.num_heads / p.kv.num_kv_heads);
  const int first_position = p.positions[row_begin];
  const int end = first_position + min(tile_row + kRows, num_rows);  // Keys that any row of the tile sees.
  const int* const table = p.block_tables + static_cast<long long>(sequence) * p.max_blocks;
  const int rows[2] = {tile_row + warp * 16 + group, tile_row + warp * 16 + group + 8};  // Of this lane; may lie behind the last.

  unsigned q[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = rows[r % 2], dim = step * 16 + pair * 2 + r / 2 * 8;
      float2 value = make_float2(0.0f, 0.0f);
      if (row < num_rows) {
        value = *reinterpret_cast<const float2*>(p.q + (static_cast<long long>(row_begin + row) * p.num_heads + head) * kHeadDim + dim);
      }
      q[step][r] = Pack<T>(value.x, value.y);
    }
  }
  float out[kOutTiles][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const float scale = p.scale * 1.4426950408889634f;  // Powers of two instead of e.

  FetchTile<T, kHeadDim>(p, table, kv_head, 0, end, &tiles[0]);
  CommitCopies();
  for (int first = 0, now = 0; first < end; first += kKeys, now ^= 1) {
    if (first + kKeys < end) FetchTile<T, kHeadDim>(p, table, kv_head, first + kKeys, end, &tiles[now ^ 1]);
    CommitCopies();  // An empty group keeps the count.
    WaitCopies<1>();
    __syncthreads();
    const Tile<T, kHeadDim>& tile = tiles[now];
    const int matrix_row = lane % 16, matrix_column = lane / 16 * 8;  // This lane's row for ldmatrix.
    float scores[kKeyTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        unsigned k[4];
        LoadTransposed(k, &tile.k[step * 16 + matrix_row][n * 8 + matrix_column]);
        MultiplyAdd(scores[n], q[step], k[0], k[1], T());
        MultiplyAdd(scores[n + 1], q[step], k[2], k[3], T());
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_position + rows[half];
      float largest = maximum[half];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = first + n * 8 + pair * 2 + i <= position ? score * scale : -INFINITY;
          largest = fmaxf(largest, score);
        }
      }
      largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
      const float shrink = exp2f(maximum[half] - largest);
      maximum[half] = largest;
      float added = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * half + i];
          score = exp2f(score - largest);
          added += score;
        }
      }
      sum[half] = sum[half] * shrink + added;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        out[n][2 * half] *= shrink;
        out[n][2 * half + 1] *= shrink;
      }
    }
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const unsigned weights[4] = {Pack<T>(scores[2 * step][0], scores[2 * step][1]), Pack<T>(scores[2 * step][2], scores[2 * step][3]),
                                   Pack<T>(scores[2 * step + 1][0], scores[2 * step + 1][1]), Pack<T>(scores[2 * step + 1][2], scores[2 * step + 1][3])};
#pragma unroll
      for (int n = 0; n < kOutTiles; n += 2) {
        unsigned v[4];
        LoadTransposed(v, &tile.v[step * 16 + matrix_row][n * 8 + matrix_column]);
        MultiplyAdd(out[n], weights, v[0], v[1], T());
        MultiplyAdd(out[n + 1], weights, v[2], v[3], T());
      }
    }
    __syncthreads();  // The next copies go into this tile.
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = sum[half] + __shfl_xor_sync(kFullWarp, sum[half], 1);
    total += __shfl_xor_sync(kFullWarp, total, 2);
    if (rows[half] >= num_rows) continue;
    float* const to = p.out + (static_cast<long long>(row_begin + rows[half]) * p.num_heads + head) * kHeadDim;
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
      *reinterpret_cast<float2*>(to + n * 8 + pair * 2) = make_float2(out[n][2 * half] / total, out[n][2 * half + 1] / total);
    }
  }
}

}  // namespace
}  // namespace baton::cuda

#define BATON_PREFILL_ATTENTION(name, type, head_dim)                                                      \
  extern "C" __global__ void __launch_bounds__(128, 2)                                                     \
      prefill_attention_##name##_d##head_dim(baton::cuda::PrefillAttentionParams p) {                      \
    baton::cuda::PrefillAttention<type, head_dim>(p);                                                      \
  }
BATON_PREFILL_ATTENTION(f16, __half, 64)
BATON_PREFILL_ATTENTION(f16, __half, 128)
BATON_PREFILL_ATTENTION(bf16, __nv_bfloat16, 128)
